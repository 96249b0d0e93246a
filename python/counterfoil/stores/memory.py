"""The replay log in the memory of this process: the reference meaning of `stores.interface`.

No call ever suspends, so none can be cancelled half-way.  Adapters make it of the `ReplayStore` that they
are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from counterfoil.limits import Limits
from counterfoil.native import KeyRing, RelayBatch, Scope, StreamToken
from counterfoil.stores.interface import LogReader
from counterfoil.stores.replay.reader import Reader
from counterfoil.stores.replay.relay import Relay
from counterfoil.stores.replay.statistics import ReplayStatistics
from counterfoil.stores.replay.store import ReplayStore


class MemoryRelay:
    """A `LogRelay` over a `Relay`."""

    __slots__ = ("relay",)

    def __init__(self, relay: Relay) -> None:
        self.relay = relay

    @property
    def stream(self) -> StreamToken:
        """See `LogRelay.stream`."""
        return self.relay.stream

    @property
    def has_ended(self) -> bool:
        """See `LogRelay.has_ended`."""
        return self.relay.has_ended

    @property
    def last_event_id(self) -> str:
        """See `LogRelay.last_event_id`."""
        return self.relay.last_event_id

    async def feed(self, chunk: bytes) -> RelayBatch:
        """See `LogRelay.feed`."""
        return self.relay.feed(chunk)

    def passing(self, reader: LogReader) -> Callable[[bytes], bytes] | None:
        """See `LogRelay.passing`."""
        return self.relay.passing(reader) if isinstance(reader, Reader) else None

    def end(self) -> bool:
        """See `LogRelay.end`."""
        return self.relay.end()


class MemoryReplayLog:
    """A `ReplayLog` over a `ReplayStore`; both faces may be used at once.

    `owner` says which process this is in every stream that is opened, where there are several.
    """

    __slots__ = ("owner", "store")

    def __init__(self, store: ReplayStore, *, owner: int = 0) -> None:
        self.store = store
        self.owner = owner

    async def open_session(self, scope: Scope) -> None:
        """See `ReplayLog.open_session`."""
        self.store.open_session(scope)

    async def open_call(
        self, scope: Scope, request_ids: Sequence[int | float | str], *, owner: int = 0
    ) -> StreamToken:
        """See `ReplayLog.open_call`."""
        return self.store.open_call(scope, request_ids, owner=owner or self.owner)

    async def open_standalone(self, scope: Scope, *, owner: int = 0) -> StreamToken:
        """See `ReplayLog.open_standalone`."""
        return self.store.open_standalone(scope, owner=owner or self.owner)

    async def append(self, scope: Scope, stream: StreamToken, events: Iterable[bytes | str]) -> Sequence[str]:
        """See `ReplayLog.append`."""
        return self.store.append_many(scope, stream, events)

    async def open_relay(
        self,
        scope: Scope,
        stream: StreamToken,
        *,
        limits: Limits | None = None,
        last_event_id: str = "",
    ) -> MemoryRelay:
        """See `ReplayLog.open_relay`."""
        return MemoryRelay(self.store.open_relay(scope, stream, limits=limits, last_event_id=last_event_id))

    async def settle(self, scope: Scope, stream: StreamToken, data: bytes | str) -> str | None:
        """See `ReplayLog.settle`."""
        return self.store.settle(scope, stream, data)

    async def position_id(self, scope: Scope, stream: StreamToken, position: int) -> str | None:
        """See `ReplayLog.position_id`."""
        return self.store.position_id(scope, stream, position)

    async def end_stream(self, scope: Scope, stream: StreamToken, *, why: str = "closed") -> None:
        """See `ReplayLog.end_stream`."""
        self.store.end_stream(scope, stream, why=why)

    async def renew_epoch(self, scope: Scope, stream: StreamToken) -> None:
        """See `ReplayLog.renew_epoch`."""
        self.store.renew_epoch(scope, stream)

    async def delete_session(
        self, scope: Scope, *, keep: Iterable[StreamToken] | None = None
    ) -> list[StreamToken]:
        """See `ReplayLog.delete_session`."""
        return self.store.delete_session(scope, keep=keep)

    async def attach(
        self, scope: Scope, stream: StreamToken, *, after: int = 0, aware: bool = False
    ) -> Reader:
        """See `ReplayLog.attach`."""
        return self.store.attach(scope, stream, after=after, aware=aware)

    async def resume(
        self,
        scope: Scope,
        last_event_id: str | bytes | None,
        *,
        aware: bool = False,
        want_new: bool = False,
        attach_lost: bool = False,
        owner: int = 0,
    ) -> Reader:
        """See `ReplayLog.resume`."""
        return self.store.resume(
            scope,
            last_event_id,
            aware=aware,
            want_new=want_new,
            attach_lost=attach_lost,
            owner=owner or self.owner,
        )

    async def set_keys(self, keys: KeyRing) -> None:
        """See `ReplayLog.set_keys`."""
        self.store.set_keys(keys)

    async def statistics(self) -> ReplayStatistics:
        """See `ReplayLog.statistics`."""
        return self.store.statistics()
