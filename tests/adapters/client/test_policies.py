"""What follows a verdict: nothing is applied by default, and every exception is a choice somebody made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from counterfoil.adapters.client.connection import Connection
from counterfoil.adapters.client.inbox import Arrival
from counterfoil.adapters.client.opening import connect
from counterfoil.decisions.reconnect import ReconnectLimits
from counterfoil.errors import StreamLost, TakenOver
from counterfoil.handlers import Delivery, Handlers
from counterfoil.model.tokens import Why
from counterfoil.model.verdicts import Unverifiable
from counterfoil.protocol.continuity import CommentKind, ConnectionComment, write_comment
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.scripted import Wire, open_scripted
from counterfoil.testing.scripted_mcp import ScriptedSession, note, result_of

pytestmark = pytest.mark.anyio
QUICK = ReconnectLimits(failures=4, first_delay_ms=5, longest_delay_ms=20)


async def until(fact: Callable[[], bool]) -> None:
    while not fact():  # noqa: ASYNC110 - what is waited for is no event
        await anyio.sleep(0.005)


def forgetful() -> ScriptedSession:
    """A stock server that forgets its stream at every cut: ids go on, and prove nothing."""

    async def play_get(_exchange: Exchange, wire: Wire) -> None:
        turn = len(session.gets)
        await wire.stream()
        await wire.event(note(turn), event_id=f"id-{turn}")
        if turn == 1:
            await wire.cut()

    session = ScriptedSession(None, play_get)
    return session


def recording(kind: str, applied: list[int]) -> Handlers:
    handlers = Handlers()

    async def take(delivery: Delivery, **_key: str) -> None:
        applied.append(delivery.params["data"])

    if kind == "idempotent":

        @handlers.on("notifications/message", kind="idempotent")
        async def take_with_key(delivery: Delivery, *, idempotency_key: str) -> None:
            await take(delivery, key=idempotency_key)

    else:

        @handlers.on("notifications/message", kind="at_most_once")
        async def take_once(delivery: Delivery) -> None:
            await take(delivery)

    return handlers


async def test_by_default_nothing_of_an_unverifiable_stream_is_applied_and_the_evidence_is_told() -> None:
    applied: list[int] = []
    with anyio.fail_after(10):
        async with open_scripted(forgetful()) as server:
            handlers = recording("idempotent", applied)
            async with connect(server.url, handlers=handlers, reconnect=QUICK) as connection:
                with pytest.raises(StreamLost) as lost:
                    await connection.run()
                verdict = lost.value.verdict
                assert isinstance(verdict, Unverifiable)
                assert verdict.why is Why.NO_OVERLAP
                assert verdict.evidence is not None
                await anyio.sleep(0.05)
    assert applied == [1]


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [("idempotent", None, [1, 2]), ("at_most_once", None, [1]), ("at_most_once", True, [1, 2])],
)
async def test_at_most_once_delivers_what_is_harmless_or_confirmed(
    kind: str, answer: bool | None, expected: list[int]
) -> None:
    applied: list[int] = []
    asked: list[int] = []

    async def confirm(arrival: Arrival) -> bool:
        asked.append(arrival.params["data"])
        assert arrival.at_most_once
        return bool(answer)

    session = forgetful()
    with anyio.fail_after(10):
        async with (
            open_scripted(session) as server,
            connect(
                server.url,
                handlers=recording(kind, applied),
                reconnect=QUICK,
                on_unverifiable="at_most_once",
                confirm=None if answer is None else confirm,
            ),
        ):
            await until(lambda: len(session.gets) == 2)
            await anyio.sleep(0.1)
    assert applied == expected
    assert asked == ([2] if answer else [])


async def test_a_loss_that_the_policy_accepts_begins_anew_with_want_new() -> None:
    session = forgetful()
    got: list[Any] = []
    with anyio.fail_after(10):
        async with open_scripted(session) as server:
            connection = connect(server.url, reconnect=QUICK, on_lost_stream="accept")
            async with connection, connection.deliveries() as deliveries:
                async for arrival in deliveries:
                    got.append(arrival.params["data"])
                    if len(got) == 2:
                        break
    assert got == [1, 3]
    assert "new" in session.gets[2].headers["stream-continuity"]


async def test_a_stream_that_another_reader_took_over_is_not_opened_again() -> None:
    async def play_get(_exchange: Exchange, wire: Wire) -> None:
        await wire.stream()
        await wire.event(note(1), event_id="a")
        end = ConnectionComment(kind=CommentKind.END, epoch="AAAAAAAAAAA", why=Why.SUPERSEDED)
        await wire.raw(write_comment(end))
        await wire.end()

    session = ScriptedSession(None, play_get)
    with anyio.fail_after(10):
        async with open_scripted(session) as server, connect(server.url, reconnect=QUICK) as connection:
            with pytest.raises(TakenOver):
                await connection.run()
            await anyio.sleep(0.1)
    assert len(session.gets) == 1


async def test_a_reply_that_was_cut_is_posted_again_with_the_same_bytes() -> None:
    asked = 0
    replies: list[bytes] = []

    async def elicit(_params: Any) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return {"action": "accept", "content": {"n": asked}}

    async def script(exchange: Exchange, wire: Wire) -> None:
        if b'"id":"q"' in exchange.body:
            replies.append(exchange.body)
            if len(replies) == 1:
                await wire.cut()
                return
        await session(exchange, wire)

    async def play(_exchange: Exchange, wire: Wire, message: Any) -> None:
        await wire.stream()
        await wire.event({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {}})
        await until(lambda: len(replies) == 2)
        await wire.event(result_of(message["id"]))
        await wire.end()

    session = ScriptedSession(play)
    answer = {"elicitation/create": elicit}

    async def ask(connection: Connection) -> None:
        await connection.request("tools/call", {})

    with anyio.fail_after(10):
        async with open_scripted(script) as server:
            options: dict[str, Any] = {"answer": answer, "reconnect": QUICK, "standalone": False}
            async with connect(server.url, **options) as connection:
                await ask(connection)
    assert asked == 1
    assert replies[0] == replies[1]
