"""One event on its way to the application: delivered, passed over, an answer, or a fault."""

from __future__ import annotations

import json
from typing import Any

from counterfoil.model.stream import RequestRecord
from counterfoil.model.tokens import StreamKind, Why
from counterfoil.native import KeyRing, Scope, SseParser, StreamToken
from counterfoil.protocol.client_stream.commands import Answer, Deliver, PassOver, PauseReading, ResumeReading
from counterfoil.protocol.client_stream.delivery import Delivery, Read
from counterfoil.protocol.client_stream.foreign_ids import Declared
from counterfoil.protocol.client_stream.requests import Requests
from counterfoil.protocol.client_stream.settings import StreamSettings
from counterfoil.protocol.client_stream.track import Arrived, Track

RING = KeyRing.from_secret(b"k" * 32, made_s=1)
SCOPE = Scope(session="s")
TOKEN = StreamToken.mint(kind="call", random=b"r" * 12)
EPOCH = "AAAAAAAAAAA"


def make(*, find_key: Any = None, unprocessed_max: int = 4) -> Delivery:
    settings = StreamSettings(
        server="x",
        stream="l",
        kind=StreamKind.CALL,
        revision="2025-11-25",
        request=RequestRecord(request_id=7),
        payload_key=find_key,
        unprocessed_max=unprocessed_max,
    )
    return Delivery(settings, Track("l", "e", Declared()), Requests([7]))


def message(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


NOTE = message(method="notifications/x")
RESULT = message(id=7, result={})


def read(delivery: Delivery, event_id: str, data: bytes = NOTE, name: str = "message") -> Read:
    return delivery.read_continuous(Arrived(name, data, event_id), trusts_inband_errors=False)


def kinds(found: Read) -> list[type]:
    return [type(command) for command in found.commands]


def test_next_event_is_delivered_and_is_progress() -> None:
    found = read(make(), "a")
    assert kinds(found) == [Deliver]
    assert found.is_progress
    assert found.fault is None


def test_event_that_comes_again_is_passed_over_and_is_no_progress() -> None:
    delivery = make()
    read(delivery, "a")
    again = read(delivery, "a")
    assert kinds(again) == [PassOver]
    assert not again.is_progress


def test_answer_is_handed_over_once_and_not_dispatched() -> None:
    found = read(make(), "a", RESULT)
    assert kinds(found) == [Answer]


def test_answer_survives_a_fault() -> None:
    delivery = make()
    read(delivery, "a")
    found = read(delivery, "a", RESULT)
    assert found.fault is not None
    assert kinds(found) == [Answer]


def test_stream_without_continuity_is_read_for_its_answer() -> None:
    delivery = make()
    other = delivery.read_for_the_answer(Arrived("message", NOTE, "a"), Why.EPOCH, trusts_inband_errors=False)
    assert other == Read([])
    answer = delivery.read_for_the_answer(
        Arrived("message", RESULT, "b"), Why.EPOCH, trusts_inband_errors=False
    )
    assert kinds(answer) == [Answer]


def test_payload_key_is_looked_for_only_there() -> None:
    delivery = make(find_key=lambda data: "k")
    found = delivery.read_for_the_answer(Arrived("message", NOTE, "a"), Why.EPOCH, trusts_inband_errors=False)
    (stray,) = found.commands
    assert isinstance(stray, Deliver)
    assert stray.at_most_once
    assert not stray.in_sequence


def test_reading_pauses_and_goes_on_at_half() -> None:
    delivery = make(unprocessed_max=4)
    for n in range(4):
        assert delivery.pause_if_full() == []
        read(delivery, f"id-{n}")
    assert delivery.pause_if_full() == [PauseReading()]
    assert delivery.pause_if_full() == []
    assert delivery.settle(1) == []
    assert delivery.settle(2) == [ResumeReading()]
    assert delivery.settle(3) == []


def test_the_short_way_says_of_every_event_what_the_long_way_says_or_leaves_it() -> None:
    """All pairs of an id and a body that a next event might have, after event 1 of a stream with our ids."""
    chain = RING.digest_chain(SCOPE, stream=TOKEN, epoch=EPOCH)
    digests = [chain.current, *(chain.append(n, data=NOTE) for n in range(1, 4))]

    def own(sequence: int, *, token: StreamToken = TOKEN, epoch: str = EPOCH) -> str:
        digest = digests[sequence]
        return str(RING.event_id(SCOPE, stream=token, epoch=epoch, sequence=sequence, digest=digest))

    ids = [
        own(0),
        own(1),
        own(2),
        own(3),
        own(2, epoch="BBBBBBBBBBA"),
        own(2, token=StreamToken.mint(kind="call", random=b"q" * 12)),
        own(2) + "x",
        own(2)[:-1],
        "2",
        "",
        None,
    ]
    bodies = [NOTE, RESULT, message(id=8, result={}), message(id=3, method="ping"), b"{}", b"no json", b"[]"]
    taken = 0
    for event_id in ids:
        for data in bodies:
            for name in ("message", "other"):
                short, long = make(), make()
                for delivery in (short, long):
                    read(delivery, own(1))
                by_long = long.read_continuous(Arrived(name, data, event_id), trusts_inband_errors=False)
                (event,) = SseParser(data="bytes").feed(frame_of(name, data, event_id))
                by_short = short.read_next(event)
                if by_short is not None:
                    taken += 1
                    assert by_long.commands == [by_short]
                    assert by_long.is_progress
                    assert short._track.positions.held == long._track.positions.held
                    assert short._track.sequence == long._track.sequence == 2
    assert taken == 2  # a notification and a request, each with the next id


def frame_of(name: str, data: bytes, event_id: str | None) -> bytes:
    head = f"event: {name}\n" if name != "message" else ""
    own = f"id: {event_id}\n" if event_id is not None else ""
    return (head + own).encode() + b"data: " + data + b"\n\n"
