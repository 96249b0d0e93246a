"""An upstream that is lost without proof ends its calls before their next beat, on a clock that jumps."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from clock_kit import Sent, asked, jumping_backend
from counterfoil.native import EventId, SseParser
from gateway_kit import REVISION, Behind, Exchange, Upstream, in_band, note

pytestmark = pytest.mark.anyio

#: Ids that nobody guesses, so that one that comes back proves that the cursor was honoured.
IDS = [f"{n}-6f2c9e0b7d514c3a8e21" for n in range(8)]
#: Seconds between two beats; every loss happens right behind a beat, so there is this time until the next.
BEAT_S = 15.0
LOST_AT = 1.0 + 3 * BEAT_S
#: The library's clock and our sums of floats.
ABOUT = 0.01


@pytest.fixture(params=["trio", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return jumping_backend(request.param)


class Loses:
    """Scripts a call that sends one note, is silent until it breaks off, and is asked for again."""

    def __init__(self, on_resume: Callable[[Exchange], Awaitable[None]], *, has_ids: bool = True) -> None:
        self.on_resume = on_resume
        self.has_ids = has_ids
        self.resumes: list[float] = []

    async def on_call(self, x: Exchange) -> None:
        await x.start()
        await anyio.sleep(1.0)
        await x.note(1, event_id=IDS[1] if self.has_ids else None)
        await anyio.sleep(LOST_AT - 1.0)
        raise RuntimeError("the upstream is lost")

    async def on_get(self, x: Exchange) -> None:
        self.resumes.append(anyio.current_time())
        await self.on_resume(x)


@asynccontextmanager
async def calling(script: Loses) -> AsyncIterator[Sent]:
    """Make a call through a gateway in this process, over an upstream in this process."""
    behind = Behind(Upstream(script.on_call, script.on_get), beat_s=BEAT_S)
    async with behind.gateway.running():
        opening = {
            "jsonrpc": "2.0",
            "id": 0,
            "method": "initialize",
            "params": {"protocolVersion": REVISION, "capabilities": {}},
        }
        async with asked(behind.gateway, "POST", opening) as opened:
            await opened.is_complete.wait()
        call = {"jsonrpc": "2.0", "id": "own", "method": "tools/call", "params": {"name": "t"}}
        fields = {
            "mcp_session_id": opened.headers["mcp-session-id"],
            "mcp_protocol_version": REVISION,
            "stream_continuity": "v=1",
        }
        async with asked(behind.gateway, "POST", call, **fields) as sent:
            yield sent


def messages_in(sent: Sent) -> list[Any]:
    events = SseParser().feed(b"".join(piece for _, piece in sent.pieces))
    return [json.loads(event.data) for event in events if event.data]


def check_ended(sent: Sent, began: float, *, within_s: float) -> None:
    """The call ended by its in-band error, so soon after the loss, and no beat came between."""
    *notes, error = messages_in(sent)
    assert notes == [note(1)]
    assert error["id"] == "own"
    assert in_band(error)["executed"] == "unknown"
    lost, ended = began + LOST_AT, sent.time_of(b'"error"')
    assert lost - ABOUT <= ended <= lost + within_s + ABOUT
    beats = sent.beats()
    assert len(beats) == 3, "the stream was beating until it was lost"
    assert not [at for at in beats if lost + ABOUT < at <= ended]


async def never(_x: Exchange) -> None:
    raise AssertionError("it is not asked for")


async def test_without_ids_it_ends_at_once() -> None:
    script = Loses(never, has_ids=False)
    began = anyio.current_time()
    async with calling(script) as sent:
        await sent.is_complete.wait()
    check_ended(sent, began, within_s=0.0)


async def test_one_that_shows_another_history_ends_when_it_is_judged() -> None:
    async def another(x: Exchange) -> None:
        await x.start()
        await x.note(7, event_id="7-of-another-life-0e1d2c3b")
        await x.wait_gone()

    script = Loses(another)
    began = anyio.current_time()
    async with calling(script) as sent:
        await sent.is_complete.wait()
    assert script.resumes
    check_ended(sent, began, within_s=BEAT_S * 2 / 3)


async def test_one_that_accepts_and_says_nothing_is_not_believed_beyond_the_beat() -> None:
    async def silent(x: Exchange) -> None:
        await x.start()
        await x.wait_gone()

    script = Loses(silent)
    began = anyio.current_time()
    async with calling(script) as sent:
        await sent.is_complete.wait()
    assert script.resumes
    check_ended(sent, began, within_s=BEAT_S * 2 / 3)


async def test_one_that_refuses_again_and_again_is_given_up_by_the_beat() -> None:
    async def refuses(x: Exchange) -> None:
        await x.json({}, 503)

    script = Loses(refuses)
    began = anyio.current_time()
    async with calling(script) as sent:
        await sent.is_complete.wait()
    assert len(script.resumes) > 2
    check_ended(sent, began, within_s=BEAT_S * 2 / 3)


async def test_one_that_proves_itself_goes_on_for_as_long_as_it_takes() -> None:
    async def proves(x: Exchange) -> None:
        await x.start()
        await x.note(1, event_id=IDS[1])  # the event that we know
        await anyio.sleep(10 * BEAT_S)
        await x.event({"jsonrpc": "2.0", "id": "own", "result": "done"}, event_id=IDS[2])
        await x.end()

    script = Loses(proves)
    async with calling(script) as sent:
        await sent.is_complete.wait()
    *notes, answer = messages_in(sent)
    assert notes == [note(1)]
    assert answer["result"] == "done"
    assert len(script.resumes) == 1
    assert len(sent.beats()) > 10


async def test_one_that_polls_may_take_its_time_and_has_lost_nothing() -> None:
    answers = iter(range(100))

    class Polls(Loses):
        async def on_call(self, x: Exchange) -> None:
            await x.start()
            await x.send(f"id: {IDS[0]}\nretry: 40000\ndata:\n\n".encode())
            await x.note(1, event_id=IDS[1])
            await x.end()

    async def polled(x: Exchange) -> None:
        await x.start()
        await x.note(1, event_id=IDS[1])
        if next(answers) < 2:
            await x.send(b"retry: 40000\n\n")
            await x.end()
            return
        await x.event({"jsonrpc": "2.0", "id": "own", "result": "done"}, event_id=IDS[2])
        await x.end()

    script = Polls(polled)
    began = anyio.current_time()
    async with calling(script) as sent:
        await sent.is_complete.wait()
    *notes, answer = messages_in(sent)
    assert notes == [note(1)]
    assert answer["result"] == "done"
    assert len(script.resumes) == 3
    assert sent.time_of(b'"result"') - began >= 3 * 40 - 1
    identity = [
        EventId(event.id or "") for event in SseParser().feed(b"".join(p for _, p in sent.pieces)) if event.id
    ]
    assert len({each.epoch for each in identity}) == 1
