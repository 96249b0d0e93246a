"""One seeded schedule: a client's stream against a server and a network that misbehave, then a time to heal.

Everything is drawn from one generator, so the same seed gives the same trace.  What must hold is checked as
it happens (`Broken` names the invariant), against the histories as they truly are.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable

from counterfoil.model.stream import Place, RequestRecord, StreamRecord
from counterfoil.model.tokens import Next, StreamKind, VerdictToken, Why
from counterfoil.model.verdicts import New, Resumed
from counterfoil.native import StreamToken
from counterfoil.protocol.client_stream import ClientStream, inputs
from counterfoil.protocol.client_stream import commands as do
from counterfoil.protocol.client_stream.cf1_ids import read_cursor
from counterfoil.protocol.client_stream.foreign_ids import Declared, Order
from counterfoil.protocol.client_stream.settings import StreamSettings
from counterfoil.protocol.client_stream.states import READING, State
from counterfoil.protocol.continuity import CommentKind, ContinuityClaim, write_claim
from world.history import REQUEST_ID, Happening, Happenings, History
from world.servers import AwareServer, Reply, StockServer, open_call, refuse

STEPS = 60
#: Virtual seconds after which everything must have come to rest.
HEAL_S = 900.0


class Broken(AssertionError):
    """An invariant does not hold."""


class Fault(dict[str, float]):
    """How likely each fault is in this schedule.

    A random subset is switched on, so rare ones are not drowned.
    """

    NAMES = (
        "cut",
        "fail_to_connect",
        "trim",
        "restart_same",
        "restart_lower",
        "restart_higher",
        "rewrite_tail",
        "hop",
        "crash",
        "strip_header",
        "strip_comments",
        "strip_all",
        "stale_header",
        "lose_frame",
        "repeat_frame",
        "busy",
        "poll",
        "slow_end",
        "other_session",
        "splice",
    )

    @classmethod
    def draw(cls, rng: random.Random) -> Fault:
        chosen = rng.sample(cls.NAMES, rng.randint(0, 8))
        return cls({name: rng.choice((0.3, 1.0, 2.0)) for name in chosen})


class Schedule:
    """One run; `trace` tells everything that happened, in order."""

    FAULTS = Fault
    SCHEMES = ("cf1", "cf1", "cf1", "uuid", "counter")

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.faults = self.FAULTS.draw(self.rng)
        self.trace = hashlib.blake2b(digest_size=16)
        self.log: list[str] = []
        self.verdicts: list[str] = []
        self.now = 0.0
        self.kind = self.rng.choice(list(StreamKind))
        self.scheme = self.rng.choice(self.SCHEMES)
        self.is_plain = self.scheme == "counter" and self.rng.random() < 0.5
        self.made = Happenings()
        self.server = AwareServer() if self.scheme == "cf1" else StockServer(self.rng)
        self.replicas = [self._new_history(), self._new_history()]
        self.active = 0
        self.reply: Reply | None = None
        self.buffer = bytearray()
        self.wake_at: float | None = None
        self.is_paused = False
        self.is_healing = False
        self.stream = self._new_stream(None)
        # What the client has, in truth: per local history, what it received, was given, and has applied.
        self.base: tuple[History, int] | None = None
        self.received: dict[int, Happening | None] = {}
        self.places: dict[str, int] = {}
        self.asked = ""
        self.applied_through = 0
        self.pending: list[tuple[Place, Happening | None]] = []
        self.applied: list[Happening] = []
        self.segment: list[Happening | None] = []
        self.settled = 0
        self.is_continuous = False
        self.opens = 0

    # --- making things

    def _new_history(self, *, start: int = 0, token: StreamToken | None = None) -> History:
        return History(self.rng, kind=self.kind.value, scheme=self.scheme, start=start, token=token)

    def _same_token_or_another(self) -> StreamToken | None:
        return self.history.token if self.rng.random() < 0.6 else None

    def _new_stream(self, record: StreamRecord | None) -> ClientStream:
        order = Order.DENSE if self.scheme == "counter" and self.rng.random() < 0.5 else Order.OPAQUE
        is_call = self.kind is StreamKind.CALL
        settings = StreamSettings(
            server="server",
            stream="local",
            kind=self.kind,
            revision="2025-11-25",
            session_id="s",
            request=RequestRecord(request_id=REQUEST_ID) if is_call else None,
            deadline=600.0 if is_call else None,
            declared=Declared(order=order),
        )
        return ClientStream(
            settings,
            mint_epoch=lambda: f"local-{self.rng.getrandbits(32):08x}",
            jitter=self.rng.random,
            record=record,
        )

    @property
    def history(self) -> History:
        return self.replicas[self.active]

    # --- the run

    def run(self) -> str:
        """Run the schedule and return the digest of its trace; raises `Broken`."""
        self.tell(inputs.OpenRequested())
        for _ in range(STEPS):
            if self.stream.state is State.ENDED:
                break
            self._act()
        self._heal()
        self._check_rest()
        return self.trace.hexdigest()

    def _act(self) -> None:
        actions: dict[Callable[[], None], float] = {
            self._append: 3.0,
            self._read: 8.0,
            self._process: 3.0,
            self._pass_time: 3.0,
            self._accept_loss: 2.0,
            self._answer: 0.3,
            self._beat: 0.7,
        }
        for name, weight in self.faults.items():
            action = getattr(self, f"_fault_{name}", None)
            if action is not None:
                actions[action] = weight
        (chosen,) = self.rng.choices(list(actions), list(actions.values()))
        self.note(f"* {chosen.__name__}")
        chosen()

    def _heal(self) -> None:
        self.is_healing = True
        self.faults = Fault()
        until = self.now + HEAL_S
        if self.kind is StreamKind.CALL and not self.history.is_answered:
            self.history.append(self.made.answer())
        elif self.kind is StreamKind.STANDALONE and self.rng.random() < 0.5:
            self.history.append(self.made.notification())
        while self.now < until and self.stream.state not in (State.ENDED, State.LOST):
            self._read_everything()
            self._process(everything=True)
            if self.stream.state is State.FLOWING and self.reply is not None:
                self.reply.beat(CommentKind.BEAT)
                self._read_everything()
                if self.stream.state is State.FLOWING and self.wake_at is None:
                    break
            self._pass_time(to_wake=True)

    def _read_everything(self) -> None:
        while self.reply is not None and self.stream.state in (State.OPENING, *READING):
            self.reply.pump()
            is_quiet = not (self.buffer or self.reply.pieces or self.reply.is_closed)
            if self.is_paused or (is_quiet and self.stream.state is not State.OPENING):
                break
            self._read()

    def tell(self, happened: inputs.Happened) -> None:
        self.note(f"> {type(happened).__name__}")
        for command in self.stream.receive(happened, now=self.now):
            self.note(f"< {type(command).__name__}")
            self._obey(command)

    def note(self, line: str) -> None:
        self.log.append(line)
        self.trace.update(line.encode())

    # --- commands

    def _obey(self, command: do.Command) -> None:
        match command:
            case do.Open():
                self._connect(command)
            case do.Close():
                self._disconnect()
            case do.Deliver():
                self._take(command.place, is_delivered=True)
            case do.PassOver():
                self._take(command.place, is_delivered=False)
            case do.Answer():
                self._check_settled(command.request_id)
                self._check_answer(command.data)
            case do.Settle():
                self._check_settled(command.request_id)
            case do.Report():
                self._check_verdict(command)
            case do.WakeAt():
                self.wake_at = command.at
            case do.PauseReading():
                self.is_paused = True
            case do.ResumeReading():
                self.is_paused = False
            case do.End():
                self.wake_at = None
            case _:
                pass

    def _connect(self, opened: do.Open) -> None:
        self.opens += 1
        self.is_continuous = False
        self.is_paused = False
        self.asked = opened.headers.get("last-event-id", "")
        self.note(f"  {opened.resumes} {opened.headers.get('last-event-id')}")
        self._check_cursor(opened)
        if self._happens("fail_to_connect", 0.2):
            # Told afterwards: a driver never answers from inside a command.
            self.reply = Reply(0, {})
            return
        if not opened.resumes:
            self.reply = self._open_call()
        elif self._happens("busy", 0.3):
            self.reply = self._busy()
        else:
            self.reply = self.server.resume(self.history, dict(opened.headers))
        self._pass_through_proxies(self.reply)

    def _open_call(self) -> Reply:
        return open_call(self.history)

    def _busy(self) -> Reply:
        status = self.rng.choice((409, 429, 502, 503))
        if self.scheme == "cf1" and self.rng.random() < 0.5:
            claim = ContinuityClaim(verdict=VerdictToken.UNVERIFIABLE, why=Why.STORE, next=Next.RETRY)
            reply = refuse(claim)
            reply.status = 503
            return reply
        return Reply(status, {"mcp-session-id": "s"})

    def _pass_through_proxies(self, reply: Reply) -> None:
        is_stale = reply.status == 200 and self._happens("stale_header", 0.5)
        strips_all = self._happens("strip_all", 0.7)
        if strips_all or self._happens("strip_header", 0.7):
            reply.headers.pop("stream-continuity", None)
        if is_stale:
            reply.headers["stream-continuity"] = self._stale_claim()
        # A false claim needs a true one beside it; where every form of the claim is gone, silence must do.
        if not is_stale and (strips_all or self._happens("strip_comments", 0.7)):
            reply.loses_comments = True
        if self._happens("other_session", 0.2):
            reply.headers["mcp-session-id"] = "another"
            reply.is_other_session = True

    def _stale_claim(self) -> str:
        """What a cache that ignores `no-store` would add.

        A claim about this cursor, or about another stream.
        """
        cursor = read_cursor(self.asked)
        if cursor is not None and self.rng.random() < 0.5:
            claim = ContinuityClaim(
                verdict=VerdictToken.RESUMED,
                next=Next.CONTINUE,
                epoch=cursor.epoch,
                after=cursor.sequence,
                digest=cursor.digest,
            )
            return write_claim(claim)
        old = self._new_history()
        verdict = self.rng.choice((VerdictToken.REORIGINATED, VerdictToken.RESUMED, VerdictToken.GAP))
        return write_claim(ContinuityClaim(verdict=verdict, why=Why.EPOCH, epoch=old.epoch, after=0))

    def _disconnect(self) -> None:
        self.reply = None
        self.buffer.clear()

    def _happens(self, fault: str, chance: float) -> bool:
        return fault in self.faults and self.rng.random() < chance

    # --- what the client does

    def _read(self) -> None:
        reply = self.reply
        if reply is None:
            return None
        if self.stream.state is State.OPENING:
            return self._read_head(reply)
        if self.is_paused:
            return None
        reply.pump()
        self._take_pieces(reply)
        if not self.buffer:
            if reply.is_closed:
                self._close(is_clean=True)
            return None
        size = self.rng.choice((1, 5, 40, 200, 4096, 4096))
        chunk = bytes(self.buffer[:size])
        del self.buffer[:size]
        return self.tell(inputs.BytesReceived(chunk))

    def _read_head(self, reply: Reply) -> None:
        if reply.status == 0:
            self.reply = None
            return self.tell(inputs.ConnectionFailed(sent=self.rng.random() < 0.5))
        return self.tell(inputs.HeadReceived(status=reply.status, headers=reply.headers))

    def _take_pieces(self, reply: Reply) -> None:
        for piece in reply.pieces:
            if reply.loses_comments and not self.is_healing and piece.startswith(b":"):
                continue
            is_event = piece.startswith(b"id:") and b"\ndata: {" in piece
            # Opaque ids cannot show that a frame is missing between two of them; nothing else is claimed.
            if is_event and self.scheme == "cf1" and self._happens("lose_frame", 0.15):
                self.note("  lost")
                continue
            self.buffer += piece
            if is_event and self._happens("repeat_frame", 0.15):
                self.buffer += piece
        reply.pieces.clear()

    def _close(self, *, is_clean: bool) -> None:
        self._disconnect()
        self.tell(inputs.BodyEnded(clean=is_clean))

    def _process(self, *, everything: bool = False) -> None:
        count = len(self.pending) if everything else self.rng.randint(0, len(self.pending))
        for place, happening in self.pending[:count]:
            if happening is not None:
                self._apply(happening)
            last = place.position
        if count:
            del self.pending[:count]
            self.applied_through = last
            self.tell(inputs.EventsProcessed(through=last))

    def _apply(self, happening: Happening) -> None:
        if happening in self.applied:
            raise Broken(f"I2: event {happening.number} is applied twice")
        self.applied.append(happening)

    def _pass_time(self, *, to_wake: bool = False) -> None:
        step = self.rng.choice((0.01, 0.1, 1.0, 5.0))
        if to_wake:
            step = 1.0 if self.wake_at is None else max(0.0, self.wake_at - self.now)
        self.now += step
        if self.wake_at is not None and self.now >= self.wake_at:
            self.wake_at = None
            self.tell(inputs.TimePassed())

    def _accept_loss(self) -> None:
        if self.stream.state is State.LOST:
            self.pending.clear()
            self.tell(inputs.LossAccepted())

    def _fault_crash(self) -> None:
        """The process dies; what it kept is the record as of the last commit, which is the processed mark."""
        record = self.stream.record
        if self.stream.state in (State.ENDED, State.LOST, State.UNOPENED):
            return
        self.pending.clear()
        self._disconnect()
        self.wake_at = None
        if self.opens:
            self.stream = self._new_stream(record)
            processed = record.processed
            self.received = {at: each for at, each in self.received.items() if at <= processed}
            self.segment = self.segment[: self._applied_in_segment()]
            self.tell(inputs.OpenRequested())

    def _applied_in_segment(self) -> int:
        return len(self.segment) - len([each for each in self.segment if each not in self.applied])

    # --- what the server and the network do

    def _append(self) -> None:
        if self.history.is_answered:
            return
        is_decoy = self.kind is StreamKind.CALL and self.rng.random() < 0.02
        made = self.made.decoy() if is_decoy else self.made.notification(is_plain=self.is_plain)
        self.history.append(made)

    def _answer(self) -> None:
        if self.kind is StreamKind.CALL and not self.history.is_answered:
            self.history.append(self.made.answer())

    def _beat(self) -> None:
        if self.reply is not None:
            self.reply.pump()
            self.reply.beat(CommentKind.BEAT)

    def _fault_cut(self) -> None:
        if self.reply is None:
            return
        if self.stream.state is State.OPENING:
            self.reply = Reply(0, {})
        elif self.stream.state in READING:
            self._close(is_clean=self.rng.random() < 0.3)

    def _fault_trim(self) -> None:
        self.history.trim(self.history.last - self.rng.randint(-1, 2))

    def _fault_restart_same(self) -> None:
        self._fault_cut()

    def _fault_restart_lower(self) -> None:
        self._replace(self._new_history(token=self._same_token_or_another()))

    def _fault_restart_higher(self) -> None:
        start = self.history.last + self.rng.randint(0, 2)
        self._replace(self._new_history(start=start, token=self._same_token_or_another()))

    def _fault_splice(self) -> None:
        """An intermediary goes on with another life of the stream, inside the same connection."""
        reply = self.reply
        if self.scheme != "cf1" or reply is None or reply.history is not self.history:
            return
        if self.stream.state is not State.FLOWING:
            return
        reply.pump()
        spliced = self._new_history(start=reply.position, token=self.history.token)
        self.replicas[self.active] = reply.history = spliced

    def _replace(self, history: History) -> None:
        for _ in range(self.rng.randint(0, 3)):
            history.append(self.made.notification(is_plain=self.is_plain))
        self.replicas[self.active] = history
        self._fault_cut()

    def _fault_rewrite_tail(self) -> None:
        history = self.history
        lost = min(self.rng.randint(1, 3), history.last - history.start)
        history.rewrite_tail(history.last - lost, keeps_ids=self.rng.random() < 0.5)
        # As many as before, more often than not: then every number fits again.
        for _ in range(lost if self.rng.random() < 0.6 else self.rng.randint(0, 3)):
            history.append(self.made.notification(is_plain=self.is_plain))
        if self.rng.random() < 0.3:
            self._answer()
        self._fault_cut()

    def _fault_hop(self) -> None:
        self.active = 1 - self.active
        for _ in range(self.rng.randint(0, 2)):
            self._append()
        self._fault_cut()

    def _fault_poll(self) -> None:
        """The server closes early after `retry`, and means to be asked again."""
        reply = self.reply
        if reply is not None and reply.history is not None and self.stream.state is State.FLOWING:
            reply.pump()
            reply.pieces.append(reply.history.echo(reply.position, retry=self.rng.choice((0, 50, 2000))))
            reply.is_closed = True

    def _fault_slow_end(self) -> None:
        reply = self.reply
        if reply is not None and self.stream.state is State.FLOWING:
            reply.beat(CommentKind.END, self.rng.choice((Why.SLOW, Why.CLOSED)))
            reply.is_closed = True

    # --- invariants

    def _check_cursor(self, opened: do.Open) -> None:
        """I4: what is asked with never passes what is applied."""
        asked = opened.headers.get("last-event-id")
        if asked is None or self.base is None or self.scheme != "cf1":
            return
        history, _ = self.base
        waiting = [place.position for place, _ in self.pending]
        sequence = int(asked.split(".")[4])
        if waiting and sequence >= waiting[0] and history.scheme == "cf1":
            raise Broken(f"I4: asked with {sequence} while {waiting[0]} is not applied")

    def _check_verdict(self, report: do.Report) -> None:
        verdict = report.verdict
        self.verdicts.append(type(verdict).__name__)
        self.note(f"  {type(verdict).__name__} {verdict.why}")
        self.is_continuous = isinstance(verdict, New | Resumed)
        reply = self.reply
        if isinstance(verdict, New):
            if self.opens > 1 or self.kind is StreamKind.STANDALONE:
                self._begin_segment()
            self._begin_segment()
        if isinstance(verdict, Resumed) and reply is not None and reply.history is not None:
            self._check_resumed(reply.history)

    def _begin_segment(self) -> None:
        self.segment = []
        self.received = {}
        self.places = {}
        self.applied_through = 0
        self.pending.clear()
        self.base = None if self.reply is None or self.reply.history is None else (self.reply.history, 0)

    def _check_resumed(self, answering: History) -> None:
        """I8: the history behind the answer holds what we received up to the mark, at the same places."""
        if self.base is not None and self.base[0] is answering and self.scheme != "cf1":
            return
        limit = self.places.get(self.asked, 0)
        for position, happening in self.received.items():
            if position <= limit and happening is not None and happening not in answering.events:
                raise Broken(f"I8: resumed on a history without event {happening.number}, which we hold")

    def _take(self, place: Place, *, is_delivered: bool) -> None:
        if not self.is_continuous:
            raise Broken("I8: an event was dispatched without a verdict that allows it")
        if is_delivered:
            self._take_delivered(place)
        elif place.position > max([self.applied_through, *(waiting.position for waiting, _ in self.pending)]):
            self.pending.append((place, None))

    def _take_delivered(self, place: Place) -> None:
        reply = self.reply
        if reply is None or reply.history is None or reply.is_other_session:
            raise Broken("I6: an event of nobody's, or of another session")
        happening = reply.history.truth(place.event_id)
        self.note(f"  {place.position} {None if happening is None else happening.number}")
        self._check_order(reply.history, happening)
        self.received[place.position] = happening
        self.places[place.event_id] = place.position
        self.segment.append(happening)
        self.pending.append((place, happening))

    def _check_order(self, history: History, happening: Happening | None) -> None:
        """I1, I3, I7.

        What is delivered within one continuity is a piece of one true history, without a hole.
        """
        if happening is None or not self.segment or self.segment[-1] is None:
            return
        before, events = self.segment[-1], history.events
        if happening not in events or before not in events:
            raise Broken("I7: two histories in one continuity")
        if events.index(happening) != events.index(before) + 1:
            raise Broken(f"I7: {happening.number} follows {before.number}: a hole, a repeat or a turn back")

    def _check_settled(self, request_id: int | str) -> None:
        self.settled += 1
        if self.settled > 1 or request_id != REQUEST_ID:
            raise Broken("I5: a request ends twice")

    def _check_answer(self, data: bytes) -> None:
        if json.loads(data)["id"] != REQUEST_ID:
            raise Broken("I5: somebody else's answer")

    def _check_rest(self) -> None:
        """I16: after the faults end, everything comes to rest.

        A request has ended, a flowing stream is caught up.
        """
        if self.kind is StreamKind.CALL and not self.settled:
            raise Broken(f"I16: the call is silent, {self.stream.state}")
        if self.stream.state in (State.WAITING, State.OPENING):
            raise Broken("I16: it still asks")
        history = None if self.reply is None else self.reply.history
        if self.stream.state is not State.FLOWING or history is None or not history.events:
            return
        if self.kind is StreamKind.STANDALONE and self.segment and history.events[-1] is not self.segment[-1]:
            raise Broken("I16: flowing, and not caught up")


def run_seed(seed: int) -> str:
    """Run one schedule and return its trace's digest."""
    return Schedule(seed).run()


def first_broken(
    seeds: Iterable[int], *, make: Callable[[int], Schedule] = Schedule
) -> tuple[int, str] | None:
    """Return the first seed whose schedule breaks an invariant or raises, and what it said."""
    for seed in seeds:
        try:
            make(seed).run()
        except Exception as error:
            return seed, f"{type(error).__name__}: {error}"
    return None
