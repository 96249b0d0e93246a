"""What cannot be verified here, or is known to be over, reaches no other process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from counterfoil.native import KeyRing
from gateway_kit import Exchange, Upstream
from workers_kit import cursor_of, until, workers

pytestmark = pytest.mark.anyio

OTHER_KEYS = KeyRing.from_secret(b"2" * 32, made_s=1)


def change(text: str, place: int) -> str:
    return text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]


@pytest.mark.slow
async def test_forged_stale_and_foreign_cursors_are_never_forwarded(
    folder: Path, scaled: Callable[[int, int], int]
) -> None:
    count = scaled(200, 10_000)
    async with workers(Upstream(), folder, reads_at_once=100) as host:
        session = host.clients[0].fields["mcp-session-id"]
        living = host.each[0].peers.own.number
        earlier = living - 1
        whys: Counter[str] = Counter()

        async def ask(number: int) -> None:
            cursor = cursor_of(session, owner=living, seed=number)
            tag = cursor.index(".", cursor.index(".", 4) + 1) + 1
            kinds = {
                "mac": change(cursor, tag + 8 + number % 12),
                "mac ": cursor_of("another session", owner=living, seed=number),
                "key": cursor_of(session, owner=living, seed=number, keys=OTHER_KEYS),
                "unknown-stream": cursor_of(session, owner=earlier, seed=number),
                "malformed": cursor[:-1],
            }
            why, tried = list(kinds.items())[number % len(kinds)]
            async with host.clients[1].get(tried) as stream:
                whys[why.strip()] += f"why={why.strip()}" in stream.claim

        async with anyio.create_task_group() as tasks:
            limiter = anyio.CapacityLimiter(20)

            async def ask_in_turn(number: int) -> None:
                async with limiter:
                    await ask(number)

            for number in range(count):
                tasks.start_soon(ask_in_turn, number)
        kinds = [number % 5 for number in range(count)]
        assert whys["mac"] == kinds.count(0) + kinds.count(1)
        assert whys["key"] == kinds.count(2)
        assert whys["unknown-stream"] == kinds.count(3)
        assert whys["malformed"] == kinds.count(4)
        assert host.each[0].peers.taken.requests.keys() <= {"SessionNews", "WantsOffers"}
        assert not host.each[1].forwards("answered")


@pytest.mark.parametrize("kind", ["mac", "foreign"])
async def test_a_standalone_cursor_that_is_not_ours_stays_here_and_the_stream_goes_on(
    folder: Path, kind: str
) -> None:
    """The home is asked without it: the loss is told, and the session's stream is read once."""

    async def on_get(exchange: Exchange) -> None:
        await exchange.start()
        await exchange.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
        await exchange.wait_gone()

    upstream = Upstream(None, on_get, logging={})
    async with workers(upstream, folder) as host:
        session = host.clients[0].fields["mcp-session-id"]
        async with host.clients[0].get() as stream:
            await stream.message()
        forged = cursor_of(session, owner=host.each[0].peers.own.number, kind="standalone", keys=OTHER_KEYS)
        cursor = {"mac": forged, "foreign": "13"}[kind]
        for client in host.clients:
            async with client.get(cursor) as stream:
                assert "verdict=unverifiable" in stream.claim
                assert stream.status == 200
        assert upstream.count("GET") == 1
        seen = [verdict for worker in host.each for verdict in worker.resumed]
        await until(lambda: len(seen) == 2)
