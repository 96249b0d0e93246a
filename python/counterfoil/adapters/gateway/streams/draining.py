"""Ends standalone streams when the gateway is about to stop, each with a time to come again.

Calls are not ended here: they have until the server's grace to get their answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from counterfoil.adapters.gateway.streams.sse_out import StreamWriter


class Draining:
    """The connections that end when draining begins; one that opens later ends at once."""

    def __init__(self) -> None:
        self._writers: set[StreamWriter] = set()
        self._has_begun = False

    def begin(self) -> None:
        self._has_begun = True
        for writer in tuple(self._writers):
            writer.drain()

    @contextmanager
    def watched(self, writer: StreamWriter | None) -> Iterator[None]:
        """End `writer`, if there is one, once draining begins."""
        if writer is None:
            yield
            return
        self._writers.add(writer)
        if self._has_begun:
            writer.drain()
        try:
            yield
        finally:
            self._writers.discard(writer)
