"""The replay store of one process: the synchronous face, over the log in Rust.

It must never wait and never run under a lock of its own.  Applications, `stores.memory` and the adapters for
SDKs call it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Self

from counterfoil.limits import Limits
from counterfoil.model.evidence import StoreEvidence
from counterfoil.model.tokens import Next, Why
from counterfoil.model.verdicts import New
from counterfoil.native import KeyRing, ReplayCore, ResumeAnswer, Scope, StreamToken
from counterfoil.stores.replay.reader import Reader
from counterfoil.stores.replay.relay import Relay
from counterfoil.stores.replay.statistics import ReplayStatistics

#: From this row of the table on the cursor is verified to be ours.
_FIRST_ROW_OF_OURS = 7
_ATTACHED = New(evidence=StoreEvidence(row=2), why=Why.FIRST, next=Next.CONTINUE)


class EphemeralKeyWarning(UserWarning):
    """No key was configured: a random one was drawn, and cursors die with this process."""


def _reader_of(answer: ResumeAnswer, asked: str | bytes | None) -> Reader:
    core = answer.reader
    if answer.row >= _FIRST_ROW_OF_OURS:
        return Reader(None, answer, core, asked.decode() if isinstance(asked, bytes) else asked)
    after = answer.after
    echo_id = core.id_at(after) if core is not None and after is not None else None
    return Reader(None, answer, core, echo_id)


class ReplayStore(ReplayCore):
    """Sessions, streams and their windows under one budget: what was sent is replayed exactly, or not at all.

    `keys` signs and verifies event IDs; without it a random key is drawn, with an `EphemeralKeyWarning`.
    `clock` returns seconds and only ever counts upwards here; the default is the monotonic clock.  Safe to
    use from several threads; after a fork every call raises `ForkedHandle`.

    Every call names its scope.  `append`, `append_many` and the other calls that are not described here are
    those of the core: none of them waits, and none runs code of yours but the clock.
    """

    __slots__ = ()

    def __new__(
        cls,
        *,
        limits: Limits | None = None,
        keys: KeyRing | None = None,
        clock: Callable[[], float] | None = None,
    ) -> Self:
        """Make an empty store.  Raises ValueError for a bound that would make a promise impossible."""
        if keys is None:
            keys = KeyRing.random()
            warnings.warn(
                "no keys were given, so a random one was drawn: every cursor dies with this process; "
                "pass keys=KeyRing.from_file(path) (`counterfoil keys new PATH` writes one)",
                EphemeralKeyWarning,
                stacklevel=2,
            )
        return super().__new__(cls, limits=limits if limits is not None else Limits(), keys=keys, clock=clock)

    def attach(self, scope: Scope, stream: StreamToken, *, after: int = 0, aware: bool = False) -> Reader:
        """Attach the connection that a stream was opened for; it reads what comes after sequence `after`.

        Takes over from an earlier reader.  Raises `UnknownStream`, and ValueError where the stream has no
        event `after` yet.
        """
        core = self._attach(scope, stream, after=after, aware=aware)
        return Reader(_ATTACHED, None, core, core.id_at(after))

    def resume(
        self,
        scope: Scope,
        last_event_id: str | bytes | None,
        *,
        aware: bool = False,
        want_new: bool = False,
        attach_lost: bool = False,
        owner: int = 0,
    ) -> Reader:
        """Decide a resume and attach its reader, in one atomic step; `reader.verdict` says what was decided.

        `last_event_id` is the header as it came, None without one.  `aware`: the client reads
        `Stream-Continuity`.  `want_new`: it asked for the standalone stream anew.  `attach_lost`: a
        standalone stream whose continuity is lost or unproven is attached all the same, the caller telling
        the loss; otherwise nothing of it is read.  A call whose cursor is refused is attached for its answer
        only, whenever that is stored or may still come.

        Raises `SessionEnded` (answer 404), `ScopeMissing`, and `StoreFull` where a standalone stream would
        have to be made and there is no room.
        """
        answer = self._resume(
            scope, last_event_id, aware=aware, want_new=want_new, attach_lost=attach_lost, owner=owner
        )
        return _reader_of(answer, last_event_id)

    def resume_many(
        self,
        asks: Iterable[tuple[Scope, str | bytes | None]],
        *,
        aware: bool = False,
        attach_lost: bool = False,
        owner: int = 0,
    ) -> list[Reader]:
        """Decide many resumes under one lock: what `resume` says of each, in order.

        Raises as `resume`; nothing stays attached for those before the one that raised.
        """
        listed = list(asks)
        answers = self._resume_many(listed, aware=aware, attach_lost=attach_lost, owner=owner)
        return [_reader_of(answer, ask[1]) for answer, ask in zip(answers, listed, strict=True)]

    def open_relay(
        self,
        scope: Scope,
        stream: StreamToken,
        *,
        limits: Limits | None = None,
        last_event_id: str = "",
        takes_anything: bool = False,
    ) -> Relay:
        """Return a relay that appends an upstream connection's events to `stream`.

        `limits` bound the upstream's lines and events.  `last_event_id` is what that connection was opened
        with.  `takes_anything` appends data that is no JSON-RPC too.
        """
        core = self._open_relay(
            scope,
            stream,
            limits=limits if limits is not None else Limits(),
            last_event_id=last_event_id,
            takes_anything=takes_anything,
        )
        return Relay(core)

    def statistics(self) -> ReplayStatistics:
        """Return the counters."""
        counts = self._statistics()
        return ReplayStatistics(**{**counts, "rows": tuple(counts["rows"])})
