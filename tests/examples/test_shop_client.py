"""The example of a client with handlers, killed in the middle: every change of the stock is applied once."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from counterfoil.model.tokens import Next, VerdictToken
from counterfoil.native import EventId, KeyRing, Scope, StreamToken
from counterfoil.protocol.continuity import ContinuityClaim, write_claim
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.scripted import Wire, open_scripted
from counterfoil.testing.scripted_mcp import ScriptedSession

pytestmark = pytest.mark.anyio
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "shop_client.py"
CHANGES = 60


class Shop:
    """A standalone stream of changes with ids of ours; `sent` is how many may be read."""

    def __init__(self) -> None:
        self._ring, self._scope = KeyRing.from_secret(bytes(32), made_s=1), Scope(session="s-1")
        self._token = StreamToken.mint(kind="standalone", random=bytes(12))
        chain = self._ring.digest_chain(self._scope, stream=self._token, epoch="AAAAAAAAAAA")
        self._digests = [chain.current]
        self._digests += [chain.append(number, data=b"x") for number in range(1, CHANGES + 1)]
        self.sent = 0

    async def play(self, exchange: Exchange, wire: Wire) -> None:
        text = exchange.headers.get("last-event-id")
        after = 0 if text is None else EventId.parse(text).sequence
        claim = ContinuityClaim(
            verdict=VerdictToken.NEW if text is None else VerdictToken.RESUMED,
            next=Next.CONTINUE,
            epoch="AAAAAAAAAAA",
            after=after,
            digest=self._digests[after],
        )
        await wire.stream({"stream-continuity": write_claim(claim)})
        while True:
            if after == self.sent:
                await anyio.sleep(0.01)
                continue
            after += 1
            alert = {"method": "notifications/alert", "params": {"text": "low"}}
            change = {"method": "notifications/stock", "params": {"sku": "A1", "change": 1}}
            message = {"jsonrpc": "2.0", **(alert if after == CHANGES else change)}
            own = self._ring.event_id(
                self._scope,
                stream=self._token,
                epoch="AAAAAAAAAAA",
                sequence=after,
                digest=self._digests[after],
            )
            await wire.event(message, event_id=str(own))


def level(database: Path) -> int:
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            return int(connection.execute("select level from stock where sku = 'A1'").fetchone()[0])
    except (sqlite3.OperationalError, TypeError):
        return 0  # no database yet, no table, or nothing in it


async def test_what_the_example_promises_holds_through_kill_minus_nine(tmp_path: Path) -> None:
    shop, database = Shop(), tmp_path / "shop.db"
    with anyio.fail_after(60):
        async with open_scripted(ScriptedSession(None, shop.play)) as server:
            for upto in (20, 40, CHANGES):
                shop.sent = upto
                command = [sys.executable, "-W", "ignore", str(EXAMPLE), server.url, str(database)]
                async with await anyio.open_process(command, stdout=subprocess.PIPE, stderr=None) as child:
                    assert child.stdout is not None
                    if upto == CHANGES:
                        said = BufferedByteReceiveStream(child.stdout)
                        assert (await said.receive_until(b"\n", 200)).startswith(b"alert: low ")
                    else:
                        while level(database) < upto - 15:  # noqa: ASYNC110 - another process writes it
                            await anyio.sleep(0.002)
                    child.kill()
                    await child.wait()
    assert level(database) == CHANGES - 1
