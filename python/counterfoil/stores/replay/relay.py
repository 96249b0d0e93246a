"""The relay step: an upstream chunk in, its events appended under our IDs, one call per chunk.

It must judge no continuity; whoever feeds it decides on what a batch says was seen.  Made by the store.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from counterfoil.native import RelayBatch, RelayCore, StreamToken
from counterfoil.stores.replay.reader import Reader


class Relay:
    """The relay of one upstream connection into one stream; fed by one task at a time."""

    __slots__ = ("_core",)

    def __init__(self, core: RelayCore) -> None:
        self._core = core

    @property
    def stream(self) -> StreamToken:
        """The stream that is appended to."""
        return self._core.stream

    @property
    def has_ended(self) -> bool:
        """Whether the stream got its last answer by this relay."""
        return self._core.has_ended

    @property
    def last_event_id(self) -> str:
        """The upstream's last event ID as of the last thing that was taken; it moves with the append."""
        return self._core.last_event_id

    def feed(self, chunk: bytes, *, reader: Reader | None = None) -> RelayBatch:
        """Append what `chunk` completes.  With `reader`, `batch.frames` is also what that reader reads now.

        Echoes, comments, events of another name than `message` and the data ``{}`` are reported and not
        appended.  Data that is no JSON-RPC stops the relay: nothing behind it is taken, and `last_event_id`
        stays before it.  `batch.refused` and `batch.failed` say what was not taken.  Raises `UnknownStream`
        with nothing taken, and `ForkedHandle`.
        """
        return self._core.feed(chunk, reader=reader.core if reader is not None else None)

    def passing(self, reader: Reader) -> Callable[[bytes], bytes] | None:
        """Return what appends a chunk and returns what `reader` reads, in one step; None if it is detached.

        A task that waits on `reader` goes on waiting, unless there is more for it than was returned.  The end
        of the stream, and what comes with an error that is raised here (see `feed`), is left to that task.
        """
        return partial(self._core.pass_on, reader.core) if reader.core is not None else None

    def end(self) -> bool:
        """Note that the upstream's connection is over; True if it ended inside an event."""
        return self._core.end()
