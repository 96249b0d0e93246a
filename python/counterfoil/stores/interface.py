"""The replay log as adapters and gateway know it: every call async, events in batches, fit for a network.

A backend decides nothing of its own: the rows of the resume table, the bounds and the typed ends are the
same for all, and `tests/stores/test_store_contract.py` is what they must pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from counterfoil.limits import Limits
from counterfoil.model.verdicts import ResumeVerdict
from counterfoil.native import KeyRing, RelayBatch, ResumeAnswer, Scope, StreamToken
from counterfoil.stores.replay.statistics import ReplayStatistics


class LogReader(Protocol):
    """One connection's reader.  `read` never waits; a backend over a network fetches in `wait`."""

    @property
    def verdict(self) -> ResumeVerdict:
        """What was decided."""

    @property
    def answer(self) -> ResumeAnswer | None:
        """The facts behind it; None for a reader that was attached without a cursor."""

    @property
    def echo_id(self) -> str | None:
        """The ID that an echo at the start of this connection carries, if there is one."""

    @property
    def is_attached(self) -> bool:
        """Whether there is anything to read."""

    @property
    def is_answers_only(self) -> bool:
        """Whether only the call's answer will be read."""

    @property
    def is_parked(self) -> bool:
        """Whether a newer connection reads."""

    @property
    def has_caught_up(self) -> bool:
        """Whether everything was read that there is."""

    @property
    def has_read_answer(self) -> bool:
        """Whether all there is of a call's stream was read, its answer included."""

    @property
    def lendable(self) -> LogReader | None:
        """The reader that a relay may read for in this one's place; None while this one holds frames."""

    @property
    def window(self) -> tuple[int, int] | None:
        """First and last sequence when the verdict was given."""

    @property
    def position(self) -> int | None:
        """The last sequence that was read."""

    @property
    def stream(self) -> StreamToken | None:
        """The stream."""

    def read(self, max_bytes: int = ...) -> bytes:
        """Return ready frames, ``b""`` if there are none yet; raises its typed end."""

    async def wait(self) -> None:
        """Return when `read` has something to say.  May be cancelled; nothing is lost by it."""

    def close(self) -> None:
        """Detach."""


class LogRelay(Protocol):
    """The relay of one upstream connection into one stream."""

    @property
    def stream(self) -> StreamToken:
        """The stream that is appended to."""

    @property
    def has_ended(self) -> bool:
        """Whether the stream got its last answer by this relay."""

    @property
    def last_event_id(self) -> str:
        """The upstream's last event ID as of the last thing that was taken; it moves with the append."""

    async def feed(self, chunk: bytes) -> RelayBatch:
        """Append what `chunk` completes; what was seen, refused and read no further stands in the batch."""

    def passing(self, reader: LogReader) -> Callable[[bytes], bytes] | None:
        """Return what appends a chunk and returns what `reader` reads then, in one step that never waits.

        None where the backend has to wait, or `reader` is not of its making.  A task that waits on `reader`
        is woken only for more than was returned; to it is left the end of the stream, and all that comes with
        what stops the relay, which is raised.
        """

    def end(self) -> bool:
        """Note that the upstream's connection is over; True if it ended inside an event."""


class ReplayLog(Protocol):
    """The log of all streams.  Scope is mandatory; errors are those of `counterfoil.errors`.

    Every call but `append` is atomic at the authority of its stream: it happened, or it raised and nothing
    changed.  A
    cancelled call may have happened: appends are told apart by their sequences at the next resume.
    """

    async def open_session(self, scope: Scope) -> None:
        """Remember a session from its `initialize` on.

        At the bound of sessions one without streams is forgotten, of the tenant and principal that has most
        of them; `StoreFull` only where every session has streams.
        """

    async def open_call(
        self, scope: Scope, request_ids: Sequence[int | float | str], *, owner: int = 0
    ) -> StreamToken:
        """Open the stream of one POST; `StoreFull` at a bound."""

    async def open_standalone(self, scope: Scope, *, owner: int = 0) -> StreamToken:
        """Return the session's standalone stream, opened if need be."""

    async def append(self, scope: Scope, stream: StreamToken, events: Iterable[bytes | str]) -> Sequence[str]:
        """Append a batch in order and wake readers once; returns the event IDs.

        The one call that may raise half-way: the events before the one that is refused stay appended.
        """

    async def open_relay(
        self,
        scope: Scope,
        stream: StreamToken,
        *,
        limits: Limits | None = None,
        last_event_id: str = "",
    ) -> LogRelay:
        """Return a relay that appends an upstream connection's events to `stream`."""

    async def settle(self, scope: Scope, stream: StreamToken, data: bytes | str) -> str | None:
        """Append the error that settles a call, unless it has a terminal event already."""

    async def position_id(self, scope: Scope, stream: StreamToken, position: int) -> str | None:
        """Return the ID of a position, which an echo carries; None if the digest there is not known."""

    async def end_stream(self, scope: Scope, stream: StreamToken, *, why: str = "closed") -> None:
        """End a stream without an answer: "closed", "cancelled" or "adopted"."""

    async def renew_epoch(self, scope: Scope, stream: StreamToken) -> None:
        """Give a standalone stream whose history broke a new epoch."""

    async def delete_session(
        self, scope: Scope, *, keep: Iterable[StreamToken] | None = None
    ) -> list[StreamToken]:
        """Delete a session; returns the calls that were not answered."""

    async def attach(
        self, scope: Scope, stream: StreamToken, *, after: int = 0, aware: bool = False
    ) -> LogReader:
        """Attach a connection without a cursor."""

    async def resume(
        self,
        scope: Scope,
        last_event_id: str | bytes | None,
        *,
        aware: bool = False,
        want_new: bool = False,
        attach_lost: bool = False,
        owner: int = 0,
    ) -> LogReader:
        """Decide a resume and attach its reader, in one atomic step.

        Every verdict that attaches takes over from the reader before: it ends with `TakenOver`, but an
        unaware client's standalone one is parked (the last two of them).  More than three in ten seconds that
        got no data are told by `answer.hold_s`: the caller waits so long (0.5 s, doubling to 15 s) before it
        answers, unless there is something to read meanwhile, and a newer resume ends the one that waits.
        """

    async def set_keys(self, keys: KeyRing) -> None:
        """Sign and verify with another ring from now on."""

    async def statistics(self) -> ReplayStatistics:
        """Return the counters."""
