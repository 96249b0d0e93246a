"""Judge one event with data after the verdict, and say what becomes of it.

It is told whether its stream is continuous, and decides nothing about the stream itself.
"""

from __future__ import annotations

from typing import NamedTuple

from counterfoil.decisions.event_check import check_event
from counterfoil.model.events import EventEvidence, Identity, Keyed, Mode, Name, Scheme
from counterfoil.model.stream import Place
from counterfoil.model.tokens import Why
from counterfoil.model.verdicts import EventJudgement, Fault, Fresh
from counterfoil.native import SseEvent
from counterfoil.protocol.client_stream.commands import (
    Command,
    Deliver,
    PassOver,
    PauseReading,
    ResumeReading,
)
from counterfoil.protocol.client_stream.envelope import Envelope, read_envelope
from counterfoil.protocol.client_stream.requests import Requests
from counterfoil.protocol.client_stream.settings import StreamSettings
from counterfoil.protocol.client_stream.track import Arrived, Track

#: The judgement on the next event of a stream with our ids.
_NEXT = check_event(EventEvidence(scheme=Scheme.CF1, identity=Identity.NEXT))


class Read(NamedTuple):
    """What one event leads to; `fault` breaks the stream, `is_progress` moves the reader forward."""

    commands: list[Command]
    is_progress: bool = False
    fault: Fault | None = None


class Delivery:
    """The events of one stream on their way to the application."""

    def __init__(self, settings: StreamSettings, track: Track, requests: Requests) -> None:
        self._settings = settings
        self._track = track
        self._requests = requests
        self._is_paused = False
        self.is_at_most_once = False

    def read_next(self, event: SseEvent[bytes]) -> Deliver | None:
        """Take the plain case, which nearly every event is: ours, next in its sequence, and no answer.

        It says what `read_continuous` would say of it, at less cost; None leaves the event to that.
        """
        data = event.data
        if not data or event.event != "message":
            return None
        envelope = read_envelope(data)
        if envelope.method is None:
            return None
        place = self._track.take_next(event.id)
        if place is None:
            return None
        return Deliver(
            place=place,
            data=data,
            judgement=_NEXT,
            method=envelope.method,
            request_id=envelope.request_id,
            at_most_once=self.is_at_most_once,
        )

    def read_continuous(self, arrived: Arrived, *, trusts_inband_errors: bool) -> Read:
        """Take the next event of a stream that is continuous, or find that it is not the next."""
        envelope = read_envelope(arrived.data)
        answered = self._requests.among(envelope.answers)
        found = self._track.identify(arrived)
        judgement = check_event(
            EventEvidence(
                scheme=self._track.scheme,
                identity=found.identity,
                seen=found.seen,
                body=envelope.body,
                name=_name_of(arrived),
                settles=bool(answered),
            )
        )
        if isinstance(judgement, Fault):
            answers = self._answer(answered, arrived.data, None, trusts_inband_errors)
            return Read(answers, is_progress=bool(answered), fault=judgement)
        place, is_new = self._track.take(arrived, found)
        commands = self._hand_over(judgement, arrived, place, envelope)
        if answered:
            commands += self._answer(answered, arrived.data, place, trusts_inband_errors)
        return Read(commands, is_progress=is_new or bool(answered))

    def read_for_the_answer(self, arrived: Arrived, why: Why, *, trusts_inband_errors: bool) -> Read:
        """Take an event of a stream that is not continuous.

        The answer counts, and an event with a payload key.
        """
        envelope = read_envelope(arrived.data)
        answered = self._requests.among(envelope.answers)
        find_key = self._settings.payload_key
        is_keyed = not answered and find_key is not None and find_key(arrived.data) is not None
        judgement = check_event(
            EventEvidence(
                scheme=self._track.scheme,
                identity=Identity.NEXT,
                body=envelope.body,
                name=_name_of(arrived),
                mode=Mode.RESPONSE_ONLY,
                keyed=Keyed.YES if is_keyed else Keyed.NO,
                settles=bool(answered),
                stream_why=why,
            )
        )
        commands: list[Command] = []
        if isinstance(judgement, Fresh):
            commands.append(
                Deliver(
                    place=self._track.stray(arrived),
                    data=arrived.data,
                    judgement=judgement,
                    method=envelope.method,
                    request_id=envelope.request_id,
                    at_most_once=True,
                    in_sequence=False,
                )
            )
        commands += self._answer(answered, arrived.data, None, trusts_inband_errors)
        return Read(commands, is_progress=bool(answered))

    def settle_with(self, data: bytes, *, trusts_inband_errors: bool) -> list[Command]:
        """Settle the requests that this message answers, whatever is said of its stream."""
        answered = self._requests.among(read_envelope(data).answers)
        return self._answer(answered, data, None, trusts_inband_errors)

    def _answer(
        self, answered: tuple[int | str, ...], data: bytes, place: Place | None, trusts_inband_errors: bool
    ) -> list[Command]:
        return [
            self._requests.answer(each, data, place, trusts_inband_errors=trusts_inband_errors)
            for each in answered
        ]

    def _hand_over(
        self, judgement: EventJudgement, arrived: Arrived, place: Place, envelope: Envelope
    ) -> list[Command]:
        if judgement.settles:
            return []
        if not isinstance(judgement, Fresh):
            return [PassOver(place=place, judgement=judgement)]
        return [
            Deliver(
                place=place,
                data=arrived.data,
                judgement=judgement,
                method=envelope.method,
                request_id=envelope.request_id,
                at_most_once=self.is_at_most_once,
            )
        ]

    # --- pressure

    def settle(self, through: int) -> list[Command]:
        """Move the processed mark, and read on where that makes room."""
        positions = self._track.positions
        positions.settle(through)
        if self._is_paused and positions.unprocessed <= self._settings.unprocessed_max // 2:
            self._is_paused = False
            return [ResumeReading()]
        return []

    def pause_if_full(self) -> list[Command]:
        """Stop reading while too many events are not processed."""
        if self._is_paused or self._track.positions.unprocessed < self._settings.unprocessed_max:
            return []
        self._is_paused = True
        return [PauseReading()]

    def note_open(self) -> None:
        """The next connection begins unpaused; a full one pauses it with its first event."""
        self._is_paused = False


_MESSAGE, _OTHER = Name.MESSAGE, Name.OTHER


def _name_of(arrived: Arrived) -> Name:
    return _MESSAGE if arrived.name == "message" else _OTHER
