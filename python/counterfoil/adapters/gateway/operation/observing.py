"""`--observe`: what passes is parsed, stored and judged, and not a byte of it is changed.

A resume is judged by the position that its upstream id stands for in our log; the upstream answers it.
"""

from __future__ import annotations

from collections import OrderedDict

from counterfoil.adapters.gateway.operation.verdict_log import VerdictLog
from counterfoil.adapters.gateway.wire.messages import RequestId
from counterfoil.errors import CounterfoilError
from counterfoil.limits import Limits
from counterfoil.native import Scope, SseParser, StreamToken
from counterfoil.stores.interface import ReplayLog

_REMEMBERED_IDS = 100_000


class Observer:
    """Keeps our log beside what the upstream and its clients say to each other."""

    def __init__(self, log: ReplayLog, limits: Limits, verdicts: VerdictLog) -> None:
        self._log = log
        self._limits = limits
        self._verdicts = verdicts
        self._ours: OrderedDict[tuple[Scope, str], tuple[StreamToken, str]] = OrderedDict()

    async def watch_call(self, scope: Scope, request_id: RequestId) -> Tap | None:
        """Return what stores the answer as it passes; None where the log takes no more."""
        try:
            return Tap(self, scope, await self._log.open_call(scope, [request_id]))
        except CounterfoilError:
            return None

    async def judge(self, scope: Scope, cursor: str | None) -> Tap | None:
        """Tell the verdict that this resume would have got; return what stores the answer as it passes."""
        known = self._ours.get((scope, cursor or ""))
        try:
            reader = await self._log.resume(scope, known[1] if known is not None else cursor)
        except CounterfoilError:
            return None
        reader.close()
        self._verdicts.tell(reader.verdict, reader.stream)
        return Tap(self, scope, known[0]) if known is not None else None

    async def _take(self, scope: Scope, stream: StreamToken, event_id: str | None, data: str) -> None:
        if event_id is not None and (scope, event_id) in self._ours:
            return  # replayed by the upstream, and in our log already
        (ours,) = await self._log.append(scope, stream, [data])
        if event_id:
            self._ours[scope, event_id] = (stream, ours)
            if len(self._ours) > _REMEMBERED_IDS:
                self._ours.popitem(last=False)


class Tap:
    """Takes the pieces of one answer; what cannot be stored is passed over, as nothing is promised."""

    def __init__(self, observer: Observer, scope: Scope, stream: StreamToken) -> None:
        self._observer = observer
        self._scope = scope
        self._stream = stream
        self._parser: SseParser | None = SseParser(limits=observer._limits)

    async def take(self, piece: bytes) -> None:
        if self._parser is None:
            return
        try:
            for event in self._parser.feed(piece):
                if event.data:
                    await self._observer._take(self._scope, self._stream, event.id, event.data)
        except CounterfoilError:
            self._parser = None
