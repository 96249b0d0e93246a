"""`resume` against the table of the design, evaluated naively over random histories.

The naive side keeps lists and reads the rows from top to bottom; it shares no code with the store.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from counterfoil import EventId, KeyRing, Limits, ReplayStore, Scope, SessionEnded, StreamEnded, StreamToken
from hypothesis import given
from hypothesis import strategies as st
from store_kit import Clock, answer, ask, data_of, note

WINDOW = 6
AGE_S = 100
GRACE_S = 40
TOMBSTONE_S = 70
SCOPES = [Scope(tenant="t", principal="p", session=name) for name in ("s0", "s1", "s2")]


@dataclass
class Event:
    event_id: EventId
    data: bytes
    kind: str  # note, ask, answer
    stored_s: int


@dataclass
class Stream:
    token: StreamToken
    session: int
    epoch: str
    is_call: bool
    events: list[Event] = field(default_factory=list)
    first: int = 1
    ended_s: int | None = None
    buried_s: int | None = None
    has_answer: bool = False
    written: int = 0
    was_written: bool = False

    @property
    def last(self) -> int:
        return len(self.events)

    def trim(self, now_s: int) -> None:
        while self.first <= self.last:
            oldest = self.events[self.first - 1]
            is_old = oldest.stored_s < now_s - AGE_S - 1
            is_over = self.last - self.first + 1 > WINDOW
            is_pinned = self.has_answer and self.first == self.last and self.ended_s is not None
            if is_pinned or not (is_old or is_over):
                return
            self.first += 1


@dataclass
class Session:
    is_held: bool
    has_ended: bool = False
    standalone: Stream | None = None


@dataclass
class Expected:
    row: int
    verdict: str
    why: str
    attached: str = "nothing"
    data: list[bytes] = field(default_factory=list)
    gap: tuple[int, int] | None = None


class World:
    """A store and the naive account of it, moved by the same steps."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.keys = KeyRing.from_secret(b"0" * 32, made_s=0)
        limits = Limits(
            window_events=WINDOW,
            window_age_s=AGE_S,
            grace_s=GRACE_S,
            tombstone_age_s=TOMBSTONE_S,
            session_streams=1000,
            stream_idle_s=1e6,
            session_idle_s=1e6,
        )
        self.store = ReplayStore(keys=self.keys, clock=self.clock, limits=limits)
        self.now_s = 0
        self.sessions: dict[int, Session] = {}
        self.streams: list[Stream] = []
        self.rotations = 0

    # --- steps ---

    def open_session(self, session: int) -> None:
        if session not in self.sessions:
            self.store.open_session(SCOPES[session])
            self.sessions[session] = Session(is_held=True)

    def open_stream(self, session: int, is_call: bool) -> None:
        known = self.sessions.setdefault(session, Session(is_held=False))
        if known.has_ended:
            return
        scope = SCOPES[session]
        if is_call:
            self.adopt(self.store.open_call(scope, [1]), session, True)
        elif known.standalone is None or known.standalone.ended_s is not None:
            known.standalone = self.adopt(self.store.open_standalone(scope), session, False)

    def adopt(self, token: StreamToken, session: int, is_call: bool) -> Stream:
        stream = Stream(token=token, session=session, epoch="", is_call=is_call)
        self.streams.append(stream)
        return stream

    def live(self, number: int) -> Stream | None:
        streams = [s for s in self.streams if s.ended_s is None and not self.sessions[s.session].has_ended]
        return streams[number % len(streams)] if streams else None

    def append(self, number: int, kind: str) -> None:
        stream = self.live(number)
        if stream is None:
            return
        data = {"note": note(stream.last + 1), "ask": ask(f"e{stream.last}"), "answer": answer(1)}[kind]
        event_id = EventId.parse(self.store.append(SCOPES[stream.session], stream.token, data))
        assert event_id.sequence == stream.last + 1
        assert stream.epoch in ("", event_id.epoch)
        stream.epoch = event_id.epoch
        stream.events.append(Event(event_id, data, kind, self.now_s))
        if kind == "answer" and stream.is_call:
            stream.ended_s, stream.has_answer = self.now_s, True
        stream.trim(self.now_s)

    def end(self, number: int) -> None:
        stream = self.live(number)
        if stream is not None:
            self.store.end_stream(SCOPES[stream.session], stream.token)
            stream.ended_s = self.now_s
            if not stream.is_call:
                self.sessions[stream.session].is_held = False

    def renew(self, number: int) -> None:
        stream = self.live(number)
        if stream is not None and not stream.is_call:
            self.store.renew_epoch(SCOPES[stream.session], stream.token)
            stream.events, stream.first, stream.written, stream.epoch = [], 1, 0, ""
            self.sessions[stream.session].is_held = False

    def delete(self, session: int) -> None:
        self.store.delete_session(SCOPES[session])
        self.sessions.setdefault(session, Session(is_held=False)).has_ended = True

    def advance(self, seconds: int) -> None:
        self.now_s += seconds
        self.clock.now_s = self.now_s
        self.store.sweep()
        for stream in list(self.streams):
            if self.sessions[stream.session].has_ended:
                continue
            if stream.buried_s is not None and stream.buried_s + TOMBSTONE_S <= self.now_s:
                self.streams.remove(stream)
                if self.sessions[stream.session].standalone is stream:
                    self.sessions[stream.session].standalone = None
                    self.sessions[stream.session].is_held = False
            elif (
                stream.buried_s is None
                and (1e9 if stream.ended_s is None else stream.ended_s) + GRACE_S <= self.now_s
            ):
                stream.buried_s, stream.first = self.now_s, stream.last + 1

    def rotate(self) -> None:
        if len(self.keys.keys) < 4:
            self.rotations += 1
            self.keys = self.keys.rotated(bytes([self.rotations]) * 32, now_s=self.now_s)
            self.store.set_keys(self.keys)

    def drop_key(self) -> None:
        if len(self.keys.keys) > 1:
            self.keys = self.keys.without(self.keys.keys[-1].id)
            self.store.set_keys(self.keys)

    # --- the table, read naively ---

    def expect(
        self, session: int, cursor: str | None, made_in: int, want_new: bool, attach_lost: bool
    ) -> Expected | None:
        """The answer; None for row 1."""
        known = self.sessions.get(session)
        if known is not None and known.has_ended:
            return None
        if cursor is None:
            return self.expect_without_cursor(session, want_new, attach_lost)
        if not cursor.startswith("cf"):
            return self.lost(session, Expected(3, "unverifiable", "foreign-id"), True, attach_lost)
        if not cursor.startswith("cf1."):
            return self.lost(session, Expected(5, "unverifiable", "version"), True, attach_lost)
        if cursor.count(".") != 5:
            return Expected(4, "forged", "malformed")
        event_id = EventId.parse(cursor)
        is_standalone = event_id.stream.kind == "standalone"
        if event_id.key_id not in {key.id for key in self.keys.keys}:
            return self.lost(session, Expected(5, "unverifiable", "key"), is_standalone, attach_lost)
        if made_in != session:
            return self.lost(session, Expected(4, "forged", "mac"), is_standalone, attach_lost)
        found = [s for s in self.streams if s.token == event_id.stream and s.session == session]
        if not found:
            return self.lost(
                session, Expected(7, "unverifiable", "unknown-stream"), is_standalone, attach_lost
            )
        return self.expect_of_stream(found[0], event_id, attach_lost)

    def expect_without_cursor(self, session: int, want_new: bool, attach_lost: bool) -> Expected:
        known = self.sessions.get(session)
        refused = Expected(2, "unverifiable", "no-cursor")
        if not (known is not None and known.is_held) and not want_new and not attach_lost:
            return refused
        stream = self.standalone(session)
        if want_new:
            return Expected(2, "new", "wanted", "events")
        if not stream.was_written and self.sessions[session].is_held and stream.first == 1:
            return Expected(2, "new", "first", "events", [event.data for event in stream.events])
        if attach_lost:
            refused.attached = "events"
            refused.data = [event.data for event in stream.events[max(stream.written, stream.first - 1) :]]
        return refused

    def lost(self, session: int, expected: Expected, is_standalone: bool, attach_lost: bool) -> Expected:
        if attach_lost and is_standalone:
            stream = self.standalone(session)
            expected.attached = "events"
            expected.data = [event.data for event in stream.events[stream.first - 1 :]]
        return expected

    def standalone(self, session: int) -> Stream:
        known = self.sessions.setdefault(session, Session(is_held=False))
        if known.standalone is None or known.standalone.ended_s is not None:
            # The store is about to make one; which one is learnt afterwards.
            known.standalone = Stream(token=None, session=session, epoch="", is_call=False)  # type: ignore[arg-type]
            self.streams.append(known.standalone)
        known.standalone.trim(self.now_s)
        return known.standalone

    def expect_of_stream(self, stream: Stream, event_id: EventId, attach_lost: bool) -> Expected:
        stream.trim(self.now_s)
        asked = event_id.sequence
        missed = [event.data for event in stream.events[asked:]]
        if event_id.epoch != stream.epoch:
            expected = Expected(8, "reoriginated", "epoch")
        elif asked > stream.last:
            expected = Expected(9, "reoriginated", "ahead")
        elif asked < stream.first - 1:
            expected = Expected(10, "gap", "trimmed", gap=(asked + 1, stream.first - 1))
        elif asked > 0 and stream.events[asked - 1].event_id.digest != event_id.digest:
            expected = Expected(11, "reoriginated", "diverged")
        elif asked == stream.last and stream.ended_s is not None:
            return Expected(12, "resumed", "ended")
        elif asked == stream.last:
            return Expected(13, "resumed", "held", "events")
        else:
            return Expected(14, "resumed", "held", "events", missed)
        if stream.is_call:
            holds = stream.has_answer and stream.buried_s is None
            if stream.ended_s is None or holds:
                from_sequence = asked if expected.row == 10 else 0
                expected.attached = "answers"
                window = stream.events[max(stream.first - 1, from_sequence) :]
                is_last = [event is stream.events[-1] for event in window]
                expected.data = [
                    event.data
                    for event, last in zip(window, is_last, strict=True)
                    if event.kind == "answer" and last and stream.has_answer
                ]
        elif attach_lost:
            # Decisions S4: the session's stream that lives now, which is another one if this has ended.
            current = stream if stream.ended_s is None else self.standalone(stream.session)
            expected.attached = "events"
            expected.data = [event.data for event in current.events[current.first - 1 :]]
        return expected

    # --- compare ---

    def compare(
        self, session: int, cursor: str | None, made_in: int, want_new: bool, attach_lost: bool
    ) -> None:
        expected = self.expect(session, cursor, made_in, want_new, attach_lost)
        lookups = self.store.statistics().lookups
        try:
            reader = self.store.resume(SCOPES[session], cursor, want_new=want_new, attach_lost=attach_lost)
        except SessionEnded:
            assert expected is None
            return
        assert expected is not None
        found = reader.answer
        assert found is not None
        assert (found.row, found.verdict, found.why) == (expected.row, expected.verdict, expected.why)
        assert (found.attached, found.gap) == (expected.attached, expected.gap)
        if 3 <= found.row <= 6:
            assert self.store.statistics().lookups == lookups
            assert (found.asked, found.gap) == (None, None)
        if found.row >= 7:
            assert self.store.statistics().lookups == lookups + 1
        known = self.sessions.get(session)
        minted = known.standalone if known is not None else None
        if minted is not None and minted.token is None and found.stream is not None:
            minted.token = found.stream
        if expected.attached == "nothing":
            try:
                reader.read()
            except StreamEnded:
                return
            raise AssertionError("a reader where nothing is attached")
        assert data_of(reader) == expected.data
        for stream in self.streams:
            if stream.token == found.stream and expected.data:
                stream.written, stream.was_written = stream.last, True


STEPS = st.one_of(
    st.tuples(st.just("open_session"), st.integers(0, 2)),
    st.tuples(st.just("open_stream"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("append"), st.integers(0, 9), st.sampled_from(["note"] * 6 + ["ask", "answer"])),
    st.tuples(st.just("append"), st.integers(0, 9), st.just("note")),
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("renew"), st.integers(0, 9)),
    st.tuples(st.just("delete"), st.integers(1, 2)),
    st.tuples(st.just("advance"), st.sampled_from([1, 30, 45, 71, 102])),
    st.tuples(st.just("rotate")),
    st.tuples(st.just("drop_key")),
)
BENDS = st.sampled_from(
    ["none"] * 6 + ["digest"] * 4 + ["ahead", "ahead", "epoch", "foreign", "malformed", "version", "absent"]
)
ASKS = st.tuples(
    st.just("ask"), st.integers(0, 2), st.integers(0, 200), BENDS, st.booleans(), st.booleans(), st.booleans()
)


def bend(world: World, seen: EventId, session: int, bend: str) -> str | None:
    """A cursor made of one that was given out; validly signed wherever it is ours."""

    def signed(epoch: str = seen.epoch, sequence: int = seen.sequence, digest: str = seen.digest) -> str:
        scope = SCOPES[session]
        event_id = world.keys.event_id(
            scope, stream=seen.stream, epoch=epoch, sequence=sequence, digest=digest
        )
        return str(event_id)

    match bend:
        case "digest":
            return signed(digest="AAAAAAAAAAA" if seen.digest != "AAAAAAAAAAA" else "AAAAAAAAAAE")
        case "ahead":
            return signed(sequence=seen.sequence + 40)
        case "epoch":
            return signed(epoch="AAAAAAAAAAA")
        case "foreign":
            return "1234"
        case "malformed":
            return "cf1.nonsense"
        case "version":
            return "cf2.whatever.it.is"
        case "absent":
            return None
        case _:
            return str(seen)


@given(st.lists(st.one_of(STEPS, STEPS, ASKS), min_size=12, max_size=80))
def test_resume_is_the_table_read_from_top_to_bottom(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    world = World()
    seen: list[tuple[EventId, int]] = []
    for name, *arguments in steps:
        if name != "ask":
            before = {id(stream): stream.last for stream in world.streams}
            getattr(world, name)(*arguments)
            grown = [stream for stream in world.streams if stream.last > before.get(id(stream), 0)]
            seen.extend((stream.events[-1].event_id, stream.session) for stream in grown)
            continue
        session, pick, how, is_elsewhere, want_new, attach_lost = arguments
        if not seen or how == "absent":
            world.compare(session, None, session, want_new, attach_lost)
            continue
        event_id, made_in = seen[pick % len(seen)]
        asked_in = session if is_elsewhere else made_in
        world.compare(asked_in, bend(world, event_id, made_in, how), made_in, False, attach_lost)
    # Whatever happened: every cursor that was ever given out, once more.
    for event_id, made_in in seen:
        world.compare(made_in, str(event_id), made_in, False, False)
