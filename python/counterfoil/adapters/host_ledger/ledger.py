"""The ledger of a host's processes: who gets the owner lock serves the file, everybody else asks that one.

When the owner goes, however it goes, the kernel frees the lock and another process takes over.  What was
asked and not answered is asked again where that says the same, and is told as doubtful where it does not.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn, Self

import anyio
import anyio.abc
from anyio.abc import TaskStatus

from counterfoil.adapters.host_ledger.bells import Bell
from counterfoil.adapters.host_ledger.desk import Desk
from counterfoil.adapters.host_ledger.lives import LIFE_BYTES, Lives
from counterfoil.adapters.host_ledger.owned import OwnedLedger
from counterfoil.adapters.host_ledger.waiting import Waiting, WaitingLine
from counterfoil.adapters.host_ledger.wire import (
    FRAME_EXTRA_BYTES,
    VERSION,
    Abandon,
    AwaitInput,
    BeginCancelling,
    BeginStream,
    Bye,
    Claim,
    ClaimAgain,
    CloseCall,
    Done,
    Frames,
    Hello,
    KeptCalls,
    Mark,
    MarkDelivered,
    NoteAdopted,
    OpenPage,
    ReadEntry,
    Record,
    Release,
    Request,
    Resolve,
    Settle,
    Skip,
    TakeCall,
    error_of,
    read_answer,
    read_value,
    read_welcome,
    write_frame,
)
from counterfoil.adapters.peers.directory import SocketDirectory
from counterfoil.errors import (
    CounterfoilError,
    LedgerClosed,
    LedgerError,
    LedgerInUse,
    PeerBroken,
    UnsafeHandler,
    UnsafeStore,
)
from counterfoil.limits import Limits
from counterfoil.model.ledger_keys import UNKEYED_RANGE, EventPlace, LedgerKey
from counterfoil.model.ledger_rows import LedgerRow, StreamMark
from counterfoil.model.ledger_verdicts import ClaimAnswer, Claimed, Entry, Settled
from counterfoil.model.tokens import HandlerKind
from counterfoil.native import Scope
from counterfoil.protocol.ledger_steps import Intent, KeptCall, Settlement
from counterfoil.stores.ledger_interface import Transaction
from counterfoil.stores.ledger_sqlite.ledger import SqliteLedger
from counterfoil.stores.tickets import Ticket, settled_ticket, wake

_LOGGER = logging.getLogger("counterfoil.ledger")
_SOCKET = "ledger.sock"
_PIECE_BYTES = 256 << 10
#: How long a process that starts tries to own the ledger, or to reach who does.
_START_S = 15.0
#: Between two tries.
_PAUSES_S = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05)
_PAUSE_S = 0.1
_WELCOME_S = 10.0
#: How long an owner may answer nothing while it is asked.
_SILENCE_S = 30.0
_LOOK_S = 0.1
#: How a connection ends whose other end is gone, or was never there.
_GONE = (
    OSError,
    TimeoutError,
    anyio.EndOfStream,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
)


class HostLedger:
    """The one ledger of the processes that share a socket directory; `async with` around its use.

    It offers what a gateway needs, from the event loop that opened it; transactional handlers run where the
    ledger itself is opened (`SqliteLedger`).  `hold_s` is how long a call waits for an owner that is not
    there.  `on_orphans` is called at the owner when a process has died that may have left calls behind.

    Raises, on entering: what `SqliteLedger` raises, and LedgerInUse where something else than a process of
    this directory owns the file.
    """

    durability: Literal["disk"] = "disk"
    kinds = frozenset({HandlerKind.IDEMPOTENT, HandlerKind.AT_MOST_ONCE})

    def __init__(
        self,
        path: str | Path,
        directory: SocketDirectory,
        *,
        limits: Limits | None = None,
        answer_bytes: int = 16 << 20,
        hold_s: float = 4.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = Path(path).resolve()
        self.limits = limits if limits is not None else Limits()
        #: Told that calls may be left of a process that died.
        self.on_orphans: Callable[[], object] = _nothing
        self._directory = directory
        self._lives = Lives(directory.path)
        self._frame_bytes = max(answer_bytes, self.limits.event_bytes) + FRAME_EXTRA_BYTES
        self._hold_s = hold_s
        self._clock = clock
        self._line = WaitingLine(self.limits.ledger_queue)
        self._runs = 0
        self._owned: OwnedLedger | None = None
        self._desk: Desk | None = None
        self._is_guest = False
        self._is_open = False
        self._fence = 0
        self._secret = b""
        self._bell: Bell | None = None
        self._heard_at = 0.0
        self._lost_at: float | None = None
        self._has_begun = anyio.Event()
        self._failure: CounterfoilError | None = None
        self._is_leaving = False
        self._stack = AsyncExitStack()

    def __repr__(self) -> str:
        role = "owner" if self.is_owner else "guest" if self._is_guest else "without an owner"
        return f"<HostLedger {role if self._is_open else 'closed'}>"

    # --- facts

    @property
    def is_open(self) -> bool:
        """Whether calls are taken."""
        return self._is_open

    @property
    def is_owner(self) -> bool:
        """Whether this process owns the file."""
        return self._owned is not None

    @property
    def is_reachable(self) -> bool:
        """Whether the owner is this process, or connected."""
        return self._owned is not None or self._is_guest

    @property
    def counts(self) -> dict[str, int]:
        """Counts since the start: `takeovers`, `sent-again`, `in-doubt`, `expired`."""
        return dict(self._line.counts)

    @property
    def waits(self) -> int:
        """How many requests wait for the owner's answer."""
        return len(self._line)

    @property
    def fence(self) -> int:
        """See :attr:`counterfoil.stores.ledger_interface.Ledger.fence`; another owner has another one."""
        self._check_open()
        return self._owned.ledger.fence if self._owned is not None else self._fence

    @property
    def secret(self) -> bytes:
        """See :attr:`counterfoil.stores.ledger_interface.Ledger.secret`."""
        self._check_open()
        return self._secret

    # --- opening and closing

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._running())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        self._bell, self._failure, self._is_leaving = Bell(), None, False
        self._line = WaitingLine(self.limits.ledger_queue)
        self._lives.begin()
        try:
            # What ends the block, or the start, is raised as it is: not as a group of one.
            ended_by: Exception | None = None
            async with anyio.create_task_group() as tasks:
                ended_by = await tasks.start(self._keep)
                if ended_by is None:
                    self._is_open = True
                    tasks.start_soon(self._expire)
                    try:
                        yield
                    except Exception as error:
                        ended_by = error
                    finally:
                        with anyio.CancelScope(shield=True):
                            await self._leave()
                tasks.cancel_scope.cancel()
            if ended_by is not None:
                raise ended_by
        finally:
            self._lives.end()

    async def _leave(self) -> None:
        self._is_leaving = True
        owned, desk = self._owned, self._desk
        if owned is not None and desk is not None:
            await desk.close()
            with suppress(FileNotFoundError):
                self._socket.unlink()
            self._is_open, self._owned = False, None
            await owned.ledger.close_nowait()
        else:
            with anyio.move_on_after(self._hold_s), suppress(CounterfoilError):
                # Answers come in the order of asking: behind this one everything is done.
                await self._put(KeptCalls(UNKEYED_RANGE[1]))
            self._is_open = False
        self._line.end(LedgerClosed("the ledger was closed: nothing was written"))

    @property
    def _socket(self) -> Path:
        return self._directory.path / _SOCKET

    # --- who owns it

    async def _keep(self, *, task_status: TaskStatus[Exception | None]) -> None:
        """Own the ledger or be connected to who does, from the start to the end.

        The start ends with None, or with the error for which there is none.
        """
        self._has_begun = anyio.Event()
        async with anyio.create_task_group() as tasks:

            async def tell() -> None:
                await self._has_begun.wait()
                task_status.started(self._failure)

            tasks.start_soon(tell)
            began = anyio.current_time()
            tries = 0
            while self._failure is None:
                try:
                    if not await self._try_to_own() and await self._visit():
                        tries = 0
                except CounterfoilError as error:
                    self._note_failure(error)
                except _GONE:
                    pass
                if not self._has_begun.is_set() and anyio.current_time() - began > _START_S:
                    self._note_failure(
                        LedgerInUse(
                            "a process that is none of this directory owns the database: stop it, or give "
                            "all processes of this ledger the same directory"
                        )
                    )
                await anyio.sleep(_PAUSES_S[tries] if tries < len(_PAUSES_S) else _PAUSE_S)
                tries += 1

    def _note_failure(self, error: CounterfoilError) -> None:
        """What keeps this process from its start ends it; later it is tried again."""
        if self._has_begun.is_set():
            _tell("ledger-unreachable", why=type(error).__name__)
        else:
            self._failure = error
            self._has_begun.set()

    async def _try_to_own(self) -> bool:
        """Serve the ledger until the end; False where somebody else owns it."""
        if self._is_leaving:
            return False
        ledger = SqliteLedger(self.path, limits=self.limits, clock=self._clock)
        try:
            opening = ledger.open_nowait()
        except LedgerInUse:
            return False
        try:
            await opening
            owned = OwnedLedger(ledger, self._lives)
            await owned.read()
            listener = await anyio.create_unix_listener(self._socket, mode=0o600)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await ledger.close_nowait()
            raise
        desk = Desk(
            owned,
            self._lives,
            frame_bytes=self._frame_bytes,
            at_once=self.limits.ledger_queue,
            on_orphans=lambda: self.on_orphans(),
        )
        has_taken_over = self._has_begun.is_set()
        self._move_in(owned, desk)
        _tell("ledger-owner", takeover=has_taken_over)
        self._has_begun.set()
        if has_taken_over:
            self._line.counts["takeovers"] += 1
            self.on_orphans()
        try:
            async with listener, anyio.create_task_group() as tasks:
                for life in self._lives.others():
                    tasks.start_soon(desk.watch, life)
                await desk.serve(listener)
                await anyio.sleep_forever()  # `_leave` ends it
        finally:
            if self._owned is owned:  # cancelled before there was anything to leave
                self._owned = None
                with anyio.CancelScope(shield=True):
                    await ledger.close_nowait()
        return True

    def _move_in(self, owned: OwnedLedger, desk: Desk) -> None:
        """Begin to answer for the ledger, with what waits here: own runs first, then in its order."""
        self._line.begin_anew(anyio.current_time())
        for waiting in self._line.drain():
            _carry_out(owned, waiting, self._lives.own)
        self._owned, self._desk = owned, desk
        self._secret = owned.ledger.secret
        self._lost_at = None

    async def _visit(self) -> bool:
        """Ask the owner for as long as it answers; True if it did at all."""
        async with await anyio.connect_unix(self._socket) as stream:
            frames = Frames(self._frame_bytes)
            hello = Hello(VERSION, self._lives.own, str(self.path))
            await stream.send(write_frame(hello))
            rest: list[bytes] = []
            with anyio.fail_after(_WELCOME_S):
                while not rest:
                    rest = frames.feed(await stream.receive(_PIECE_BYTES))
            welcome = read_welcome(rest[0])
            if welcome.refused:
                raise UnsafeStore(welcome.refused)
            self._fence, self._secret = welcome.fence, welcome.secret
            self._line.begin_anew(anyio.current_time())
            self._is_guest, self._lost_at = True, None
            self._heard_at = anyio.current_time()
            self._has_begun.set()
            broken: PeerBroken | None = None
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._send, stream, tasks.cancel_scope)
                    try:
                        await self._receive(stream, frames)
                    except PeerBroken as error:
                        broken = error
                    except _GONE:
                        pass
                    tasks.cancel_scope.cancel()
            finally:
                self._is_guest, self._lost_at = False, anyio.current_time()
        if broken is not None:
            raise broken
        return True

    async def _send(self, stream: anyio.abc.ByteStream, connection: anyio.CancelScope) -> None:
        """Send what is asked, as much at once as there is."""
        assert self._bell is not None
        while True:
            pieces: list[bytes] = []
            size = 0
            while size < _PIECE_BYTES and (numbered := self._line.next_unsent()) is not None:
                frame = write_frame(numbered)
                if len(frame) > self._frame_bytes:
                    error = LedgerError(f"a write of {len(frame)} bytes: at most {self._frame_bytes}")
                    self._line.fail(numbered.number, error)
                    continue
                pieces.append(frame)
                size += len(frame)
            if not pieces:
                await self._bell.wait()
                continue
            try:
                await stream.send(b"".join(pieces))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                connection.cancel()
                return

    async def _receive(self, stream: anyio.abc.ByteStream, frames: Frames) -> None:
        while True:
            piece = await stream.receive(_PIECE_BYTES)
            self._heard_at = now = anyio.current_time()
            for frame in frames.feed(piece):
                answer = read_answer(frame)
                if isinstance(answer, Done):
                    request = self._line.request_of(answer.number)
                    if request is not None:
                        self._line.finish(answer.number, read_value(request, answer.value), now)
                elif isinstance(answer, Bye):
                    self._line.take_leave(answer.last)
                    return
                else:
                    self._line.fail(answer.number, error_of(answer))
            if self._bell is not None:
                self._bell.ring_here()  # an answer may have something to be sent

    async def _expire(self) -> None:
        """Tell those who wait that nobody answers: soon where nobody is there, later where somebody is."""
        while True:
            await anyio.sleep(_LOOK_S)
            now = anyio.current_time()
            if self._owned is not None or not len(self._line):
                continue
            if self._lost_at is not None:
                self._line.expire(now - self._hold_s)
            elif now - self._heard_at > _SILENCE_S:
                self._line.expire(now - _SILENCE_S)

    # --- asking

    def _check_open(self) -> None:
        if not self._is_open:
            raise LedgerClosed("the ledger is not open: use `async with HostLedger(...)`")

    def _put(self, request: Request) -> Ticket[Any]:
        if self._owned is not None:
            return self._owned.put(request, self._lives.own)
        self._check_open()
        ticket = self._line.add(request, anyio.current_time())
        if self._bell is not None:
            self._bell.ring_here()
        return ticket

    def _named(self, intent: Intent) -> Intent:
        """Give the run a name that is nobody else's, unless it has one."""
        if intent.run:
            return intent
        return Intent(
            scope=intent.scope,
            key=intent.key,
            kind=intent.kind,
            label=intent.label,
            fingerprint=intent.fingerprint,
            payload_key=intent.payload_key,
            round=intent.round,
            honours_keys=intent.honours_keys,
            run=self._next_run(),
        )

    def _next_run(self) -> bytes:
        self._runs += 1
        return self._lives.own + self._runs.to_bytes(8, "big")

    def claim(self, intent: Intent) -> Ticket[ClaimAnswer]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.claim`."""
        return self._put(Claim(self._named(intent)))

    def claim_again(self, claimed: Claimed) -> Ticket[Claimed]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.claim_again`."""
        return self._put(ClaimAgain(claimed))

    def settle(self, claimed: Claimed, settlement: Settlement) -> Ticket[Settled]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.settle`."""
        return self._put(Settle(claimed, settlement))

    def apply(
        self,
        intent: Intent,
        handler: Callable[[Transaction], object],
        *,
        after: Ticket[ClaimAnswer | Settled] | None = None,
    ) -> NoReturn:
        """Refuse: a transactional handler needs the transaction itself."""
        raise UnsafeHandler(
            "a transactional handler runs where the ledger's file is open: use SqliteLedger in one process"
        )

    def record(self, intent: Intent, settlement: Settlement) -> Ticket[ClaimAnswer | Settled]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.record`."""
        return self._put(Record(self._named(intent), settlement))

    def release(self, claimed: Claimed) -> Ticket[None]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.release`."""
        return self._put(Release(claimed))

    def abandon(self, claimed: Claimed) -> None:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.abandon`."""
        with suppress(LedgerError):
            self._put(Abandon(claimed))

    def await_input(self, claimed: Claimed, question: bytes) -> Ticket[None]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.await_input`."""
        return self._put(AwaitInput(claimed, question))

    def begin_cancelling(self, claimed: Claimed) -> Ticket[None]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.begin_cancelling`."""
        return self._put(BeginCancelling(claimed))

    def mark_delivered(self, claimed: Claimed) -> Ticket[None]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.mark_delivered`."""
        return self._put(MarkDelivered(claimed))

    def close_call(self, claimed: Claimed) -> Ticket[None]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.close_call`."""
        return self._put(CloseCall(claimed))

    def note_adopted(self, claimed: Claimed) -> Ticket[None]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.note_adopted`."""
        return self._put(NoteAdopted(claimed))

    def kept_calls(self, after: bytes) -> Ticket[list[KeptCall]]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.kept_calls`."""
        return self._put(KeptCalls(after))

    def take_call(self, call: KeptCall, *, run: bytes = b"") -> Ticket[LedgerRow | None]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.take_call`; None while its life lasts."""
        if self._lives.has(call.row.run[:LIFE_BYTES]):
            return settled_ticket()
        return self._put(TakeCall(call, run or self._next_run()))

    def skip(self, scope: Scope, place: EventPlace) -> None:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.skip`."""
        self._put(Skip(scope, place))

    def begin_stream(
        self, scope: Scope, place: EventPlace, *, ended: str = "", record: bytes = b""
    ) -> Ticket[StreamMark]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.begin_stream`."""
        return self._put(BeginStream(scope, place, ended, record))

    def mark(self, scope: Scope, *, server: str, stream: str) -> Ticket[StreamMark | None]:
        """See :meth:`counterfoil.stores.ledger_interface.LedgerReads.mark`."""
        return self._put(Mark(scope, server, stream))

    def entry(self, scope: Scope, key: LedgerKey) -> Ticket[Entry | None]:
        """See :meth:`counterfoil.stores.ledger_interface.LedgerReads.entry`."""
        return self._put(ReadEntry(scope, key))

    async def indeterminate(self) -> AsyncIterator[Entry]:
        """See :meth:`counterfoil.stores.ledger_interface.LedgerReads.indeterminate`."""
        after = b""
        while page := await self._put(OpenPage(after)):
            for key, entry in page:
                if entry is not None:
                    yield entry
                after = key

    def resolve(
        self, entry: Entry, outcome: Literal["completed", "failed", "not_applied"], *, note: str
    ) -> Ticket[Settled]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.resolve`."""
        return self._put(Resolve(entry, outcome, note))


def _carry_out(owned: OwnedLedger, waiting: Waiting, life: bytes) -> None:
    """Have the ledger that is open here now do what waited for another owner."""
    if not (waiting.ticket.begin() or waiting.is_sent or waiting.is_expired):
        return  # withdrawn
    try:
        ticket = owned.put(waiting.request, life)
    except (CounterfoilError, ValueError) as error:
        wake(waiting.ticket.settle(error=error))
        return

    def hand_over() -> None:
        try:
            value = ticket.result()
        except Exception as error:
            wake(waiting.ticket.settle(error=error))
            return
        if waiting.is_expired and isinstance(value, Claimed):
            owned.ledger.release(value)
        wake(waiting.ticket.settle(value))

    ticket.when_settled(hand_over)


def _nothing() -> None:
    """Nobody is told."""


def _tell(event: str, **facts: object) -> None:
    _LOGGER.info("%s", json.dumps({"event": event, **facts}))
