"""A schedule whose events are dispatched: real dispatcher, tickets and ledger steps over a disk that fails.

The client's stream and its server are those of the other schedules.  What the handlers did is counted
outside, as the world sees it, and compared with what the ledger says.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque

from counterfoil.adapters.client.keeping import Keeping
from counterfoil.adapters.dispatcher import Dispatcher, DispatchReport, DispatchTicket
from counterfoil.errors import LedgerBusy, NotApplied
from counterfoil.handlers import Delivery, Handlers
from counterfoil.model.ledger_keys import EventPlace, encode_key, encode_stream
from counterfoil.model.stream import Place, StreamRecord
from counterfoil.model.tokens import HandlerKind, OutcomeToken, StreamKind
from counterfoil.model.verdicts import Skipped
from counterfoil.protocol.client_stream import commands as do
from counterfoil.protocol.client_stream import inputs
from counterfoil.protocol.client_stream.states import State as StreamState
from counterfoil.stores.ledger_interface import Transaction
from world.disk import LIMITS, Disk, SimulatedLedger, State
from world.history import SCOPE, Happening
from world.schedule import Broken, Fault, Schedule
from world.virtual_loop import VirtualLoop

NAME = "notifications/message"
SERVER = "server"


class LedgerFault(Fault):
    """Few faults of the network, and all of the disk."""

    NETWORK = ("cut", "trim", "hop", "strip_all", "rewrite_tail", "restart_lower", "poll")
    NAMES = (
        *NETWORK,
        "kill",
        "power_loss",
        "ack_lost",
        "busy",
        "disk_full",
        "fsync_error",
        "slow_disk",
        "handler_raises",
    )


class LedgerSchedule(Schedule):
    """One run; a process is an incarnation of the ledger, its dispatcher, and a client's stream."""

    FAULTS = LedgerFault
    SCHEMES = ("cf1",)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.handler_kind = self.rng.choice(list(HandlerKind))
        self.policy = self.rng.choice(("park", "end_stream"))
        self.loop = VirtualLoop()
        self.disk = Disk()
        self.by_place: dict[EventPlace, Happening] = {}
        self.by_position: dict[tuple[bytes, str, int], list[EventPlace]] = {}
        #: What outside handlers did, and what a sink that knows keys has applied.
        self.raw: Counter[int] = Counter()
        self.sink: dict[int, set[str]] = {}
        self.in_flight: deque[tuple[Place, DispatchTicket | None]] = deque()
        self.is_lost = False
        self.has_kept_cursor = False

    # --- the run

    def run(self) -> str:
        try:
            self._start_process()
            return super().run()
        finally:
            try:
                self._end_process()
            finally:
                self.loop.close()

    def _start_process(self) -> None:
        self.ledger = SimulatedLedger(
            self.disk, self.rng, self.loop, happens=self._happens, check=self._check_commit
        )
        self.keeping = Keeping(self.ledger, SCOPE, SERVER)
        self.stopped = asyncio.Event()
        self.task = self.loop.create_task(self._live(self.ledger, self.stopped))
        self.loop.pass_time(0)

    async def _live(self, ledger: SimulatedLedger, stopped: asyncio.Event) -> None:
        async with Dispatcher(
            ledger,
            self._handlers(ledger),
            limits=LIMITS,
            on_failed=self.policy,
            on_indeterminate=self.policy,
            jitter=self.rng.random,
        ) as self.dispatcher:
            await stopped.wait()

    def _end_process(self) -> None:
        self.ledger.die()
        self.task.cancel()
        self.loop.run_until_complete(asyncio.wait([self.task]))
        self.in_flight.clear()

    def _handlers(self, ledger: SimulatedLedger) -> Handlers:
        handlers = Handlers()
        match self.handler_kind:
            case HandlerKind.TRANSACTIONAL:

                @handlers.on(NAME, kind="transactional")
                def transactional(transaction: Transaction, delivery: Delivery) -> None:
                    self._maybe_raise()
                    transaction.execute("insert", (self.by_place[delivery.place].number,))
                    self._maybe_raise()
            case HandlerKind.IDEMPOTENT:

                @handlers.on(NAME, kind="idempotent")
                async def idempotent(delivery: Delivery, *, idempotency_key: str) -> None:
                    await self._work(ledger)
                    number = self.by_place[delivery.place].number
                    self.sink.setdefault(number, set()).add(idempotency_key)
                    await self._work(ledger)
            case HandlerKind.AT_MOST_ONCE:

                @handlers.on(NAME, kind="at_most_once")
                async def at_most_once(delivery: Delivery) -> None:
                    await self._work(ledger, may_refuse=True)
                    self.raw[self.by_place[delivery.place].number] += 1
                    await self._work(ledger)

        return handlers

    async def _work(self, ledger: SimulatedLedger, *, may_refuse: bool = False) -> None:
        await asyncio.sleep(self.rng.choice((0.0, 0.001, 0.02)))
        if ledger.is_dead:
            raise asyncio.CancelledError
        self._maybe_raise(NotApplied if may_refuse and self.rng.random() < 0.5 else RuntimeError)

    def _maybe_raise(self, kind: type[Exception] = RuntimeError) -> None:
        if self._happens("handler_raises", 0.2):
            raise kind("drawn")

    # --- what the client does

    def _process(self, *, everything: bool = False) -> None:
        count = len(self.pending) if everything else self.rng.randint(0, len(self.pending))
        chosen, self.pending[:count] = self.pending[:count], []
        if chosen:
            self.loop.run(self._dispatch_all(chosen))
        if self.in_flight:
            self._let_work(everything=everything)

    async def _dispatch_all(self, chosen: list[tuple[Place, Happening | None]]) -> None:
        for place, happening in chosen:
            self._dispatch(place, happening)

    def _dispatch(self, place: Place, happening: Happening | None) -> None:
        self.keeping.begin("local", place)
        if happening is None:
            self.keeping.pass_over("local", place)
            self.in_flight.append((place, None))
            return
        at = self.keeping.event_place(place)
        if at not in self.by_place:
            self.by_place[at] = happening
            stream = encode_stream(SCOPE, SERVER, at.stream)
            self.by_position.setdefault((stream, at.epoch, at.position), []).append(at)
        delivery = Delivery(scope=SCOPE, place=at, name=NAME, data=happening.data)
        try:
            self.in_flight.append((place, self.dispatcher.dispatch(delivery)))
        except LedgerBusy as error:
            raise Broken("a queue of sixty events is full") from error

    def _let_work(self, *, everything: bool) -> None:
        self.loop.pass_time(self.rng.choice((0.0, 0.001, 0.005, 0.05)))
        if everything:
            for _ in range(200):
                if all(ticket is None or ticket.outcome != "pending" for _, ticket in self.in_flight):
                    break
                self.loop.pass_time(0.5)
            else:
                raise Broken("I16: an event is dispatched for ever")
        self._take_reports()

    def _take_reports(self) -> None:
        through, has_stopped = None, False
        while self.in_flight:
            place, ticket = self.in_flight[0]
            if ticket is not None:
                if ticket.outcome == "pending":
                    break
                report = ticket.result()
                self.note(f"  {place.position} {report.outcome} {report.why}")
                self._check_report(place, report)
                if report.why == "fingerprint":
                    # Another event has this place since the tail was rewritten: the application must decide.
                    self.is_lost = True
                    return
                if report.outcome is OutcomeToken.NOT_APPLIED or report.ends_stream:
                    has_stopped = True
                    break
            self.in_flight.popleft()
            through = place.position
        if through is not None:
            self.applied_through = through
            self.tell(inputs.EventsProcessed(through=through))
        if has_stopped:
            self._come_again()

    def _fault_kill(self) -> None:
        self._die(power=False)

    def _fault_power_loss(self) -> None:
        self._die(power=True)

    def _die(self, *, power: bool) -> None:
        if self.stream.state in (StreamState.ENDED, StreamState.LOST, StreamState.UNOPENED):
            return
        self.note("* dies")
        self._end_process()
        self.disk.survive(self.rng, power=power)
        self._start_process()
        self._come_again()

    def _come_again(self) -> None:
        """The application goes on where the ledger says that it stands, as after a restart."""
        if self.stream.state in (StreamState.ENDED, StreamState.LOST, StreamState.UNOPENED):
            return
        for at in {place.stream for place, _ in self.in_flight}:
            self.dispatcher.reopen(SCOPE, server=SERVER, stream=at)
        record = self._restore()
        self.in_flight.clear()
        self.pending.clear()
        self._disconnect()
        self.wake_at = None
        self.has_kept_cursor = False
        processed = 0 if record is None else record.processed
        self.received = {at: each for at, each in self.received.items() if at <= processed}
        self.segment = [self.received[at] for at in sorted(self.received)]
        self.applied_through = processed
        if record is None and self.kind is StreamKind.CALL:
            # Nothing of the call was kept: nobody reads its stream any more, and its caller is gone.
            self.is_lost = True
            return
        self.stream = self._new_stream(record)
        self.tell(inputs.OpenRequested())

    def _restore(self) -> StreamRecord | None:
        faults, self.faults = self.faults, LedgerFault()
        try:
            return self.loop.run(self.keeping.restore("local"))
        finally:
            self.faults = faults

    def _obey(self, command: do.Command) -> None:
        if isinstance(command, do.Keep):
            self.keeping.keep("local", command.record)
        if isinstance(command, do.PassOver) and not isinstance(command.judgement, Skipped):
            return  # its first copy is in flight, and says when it is done
        super()._obey(command)

    def tell(self, happened: inputs.Happened) -> None:
        super().tell(happened)
        if not self.has_kept_cursor and self.stream.has_cursor and not self.is_lost:
            self.has_kept_cursor = True
            self.keeping.keep("local", self.stream.record)

    def _begin_segment(self) -> None:
        super()._begin_segment()
        self.in_flight.clear()
        self.by_position.clear()  # what was not done of the stream before was given up, and said to be

    def _act(self) -> None:
        if not self.is_lost:
            super()._act()

    def _heal(self) -> None:
        if not self.is_lost:
            super()._heal()
            self._process(everything=True)

    def _pass_time(self, *, to_wake: bool = False) -> None:
        self.loop.pass_time(0.01)
        super()._pass_time(to_wake=to_wake)

    # --- invariants

    def _check_rest(self) -> None:
        if not self.is_lost:
            super()._check_rest()

    def _check_commit(self, before: State, after: State) -> None:
        """I2, I4: looked at whenever the disk has taken something."""
        for key, mark in after.book.marks.items():
            old = before.book.marks.get(key)
            if old is mark:
                continue
            is_same = old is not None and old.epoch == mark.epoch
            first = old.processed if old is not None and is_same else -1
            if mark.processed < first:
                raise Broken(f"I4: a mark goes back from {first} to {mark.processed}")
            for at in range(first + 1, mark.processed + 1):
                if known := self.by_position.get((key, mark.epoch, at)):
                    self._check_passed(known, at, after)
        self._check_once(after)
        self._check_effects_follow(before, after)

    def _check_passed(self, known: list[EventPlace], position: int, state: State) -> None:
        """Several events had this position where a tail was rewritten; the mark passes one of them."""
        row = state.book.row(encode_key(SCOPE, known[-1]))
        is_parked = row is not None and row.outcome in (OutcomeToken.FAILED, OutcomeToken.INDETERMINATE)
        if not is_parked and not any(self._has_effect(self.by_place[at], state) for at in known):
            raise Broken(f"I1: {position} is passed, and nothing was done for it")

    def _check_effects_follow(self, before: State, after: State) -> None:
        """I1: no transactional effect comes before what became of the event before it."""
        for number in after.effects[len(before.effects) :]:
            for at, happening in self.by_place.items():
                stream = encode_stream(SCOPE, SERVER, at.stream)
                known = self.by_position.get((stream, at.epoch, at.position - 1))
                if happening.number == number and known:
                    self._check_passed(known, at.position - 1, after)

    def _has_effect(self, happening: Happening, state: State) -> bool:
        match self.handler_kind:
            case HandlerKind.TRANSACTIONAL:
                return happening.number in state.effects
            case HandlerKind.IDEMPOTENT:
                return happening.number in self.sink
            case HandlerKind.AT_MOST_ONCE:
                return happening.number in self.raw

    def _check_once(self, state: State) -> None:
        if len(set(state.effects)) != len(state.effects):
            raise Broken("I2: a transactional effect is there twice")
        if any(count > 1 for count in self.raw.values()):
            raise Broken("I2: an at-most-once handler had its effect twice")
        if any(len(keys) > 1 for keys in self.sink.values()):
            raise Broken("I2: one effect reached the sink under two keys")

    def _check_report(self, place: Place, report: DispatchReport) -> None:
        """I12: what is told as completed is durable, whatever is lost now."""
        self._check_once(self.disk.durable)
        if report.outcome is not OutcomeToken.COMPLETED:
            return
        at, durable = report.delivery.place, self.disk.durable
        mark = durable.book.mark(encode_stream(SCOPE, SERVER, at.stream))
        row = durable.book.row(encode_key(SCOPE, at))
        is_known = row is not None and row.outcome is not None
        is_passed = mark is not None and mark.epoch == at.epoch and at.position <= mark.processed
        if not is_known and not is_passed:
            raise Broken(f"I12: {place.position} is told as completed, and the disk does not know it")
        if not self._has_effect(self.by_place[at], durable):
            raise Broken(f"I12: {place.position} is told as completed, and its effect is not durable")
