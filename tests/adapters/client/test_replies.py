"""A request of the server gets one reply, the same when it comes again, through our own `kill -9` too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

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
RING = KeyRing.from_secret(b"a key of thirty-two bytes, fixed", made_s=1)
EPOCH = "AAAAAAAAAAA"
QUESTION = {"jsonrpc": "2.0", "id": "q-1", "method": "elicitation/create", "params": {"message": "sure?"}}

CHILD = """
import sys, anyio, counterfoil

url, database = sys.argv[1], sys.argv[2]

async def ask(params):
    print("asked", flush=True)
    return {"action": "accept", "content": {"by": sys.argv[4]}}

async def main():
    async with counterfoil.SqliteLedger(database) as ledger, counterfoil.connect(
        url, ledger=ledger, answer={"elicitation/create": ask}
    ) as connection:
        print("ready", flush=True)
        await anyio.sleep_forever()

anyio.run(main, backend=sys.argv[3])
"""


class Asking(ScriptedSession):
    """Asks one question on its standalone stream, to every reader that has not passed it."""

    def __init__(self) -> None:
        super().__init__(None, self._ask)
        self.replies: list[bytes] = []
        self.replied = anyio.Event()
        self.takes_replies = False
        self.asked_with: list[str | None] = []
        self._token = StreamToken.mint(kind="standalone", random=bytes(12))
        chain = RING.digest_chain(Scope(session="s-1"), stream=self._token, epoch=EPOCH)
        self._digests = [chain.current, chain.append(1, data=b"the question"), chain.append(2, data=b"!")]

    def id_of(self, sequence: int) -> str:
        digest = self._digests[sequence]
        scope = Scope(session="s-1")
        return str(RING.event_id(scope, stream=self._token, epoch=EPOCH, sequence=sequence, digest=digest))

    async def _ask(self, exchange: Exchange, wire: Wire) -> None:
        text = exchange.headers.get("last-event-id")
        self.asked_with.append(text)
        after = 0 if text is None else EventId.parse(text).sequence
        verdict = VerdictToken.NEW if text is None else VerdictToken.RESUMED
        claim = ContinuityClaim(
            verdict=verdict, next=Next.CONTINUE, epoch=EPOCH, after=after, digest=self._digests[after]
        )
        await wire.stream({"stream-continuity": write_claim(claim)})
        if text is None:
            await wire.event(event_id=self.id_of(0))
        if after < 1:
            await wire.event(QUESTION, event_id=self.id_of(1))
        await anyio.sleep_forever()

    async def _answer_post(self, exchange: Exchange, wire: Wire, message: Any) -> None:
        if "result" not in message:
            await super()._answer_post(exchange, wire, message)
            return
        self.replies.append(exchange.body)
        self.replied.set()
        if not self.takes_replies:
            await anyio.sleep_forever()
        await wire.refuse(202)


async def test_a_reply_outlives_kill_minus_nine_and_nobody_is_asked_twice(
    tmp_path: Path, anyio_backend: str
) -> None:
    session = Asking()
    with anyio.fail_after(60):
        async with open_scripted(session) as server:
            for turn in range(3):
                session.takes_replies = turn == 2
                session.replied = anyio.Event()
                command = [sys.executable, "-W", "ignore", "-c", CHILD, server.url]
                command += [str(tmp_path / "calls.db"), anyio_backend, f"life {turn}"]
                async with await anyio.open_process(command, stdout=subprocess.PIPE, stderr=None) as child:
                    assert child.stdout is not None
                    said = BufferedByteReceiveStream(child.stdout)
                    assert await said.receive_until(b"\n", 100) == b"ready"
                    if turn == 0:
                        assert await said.receive_until(b"\n", 100) == b"asked"
                    await session.replied.wait()
                    child.kill()
                    # What a life says after its reply was posted is that it was asked again.
                    rest = [piece async for piece in child.stdout]
                    await child.wait()
                assert b"".join(rest) == b""
    assert len(session.replies) == 3
    assert len(set(session.replies)) == 1
    assert b'"life 0"' in session.replies[0]
    # The question has not been passed in the meantime: it came again to every life.
    assert session.asked_with == [None, session.id_of(0), session.id_of(0)]
