"""Lets what is written in one turn of the loop leave in one send: above all a head and its first events.

A cut cannot fall between them then, and the kernel is called once.  `serving` puts it under uvicorn's HTTP,
`http_connections` under httpcore2's.
"""

from __future__ import annotations

import asyncio
from typing import Any

#: Bytes at which a send is not put off any further, so that a slow client is noticed as soon as ever.
MOST_PENDING = 64 << 10
#: Of so much the beginning alone is joined to what waits: a copy of the rest would cost more than a send.
_JOINED_BYTES = 2 << 10


class JoinedWrites:
    """Stands for an asyncio transport, and puts off its writes to the end of the loop's turn.

    That is before the loop looks for news: a disconnect is told after what was written before it.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write soon; what is much is written at once, its beginning together with what waited."""
        if len(data) >= MOST_PENDING:
            if self._pending:
                self._pending.append(data[:_JOINED_BYTES])
                self._flush()
                self._transport.write(memoryview(data)[_JOINED_BYTES:])
            else:
                self._transport.write(data)
            return
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._flush)
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes >= MOST_PENDING:
            self._flush()

    def close(self) -> None:
        """Close when all was sent."""
        self._flush()
        self._transport.close()

    def write_eof(self) -> None:
        """End what is sent, behind what was written."""
        self._flush()
        self._transport.write_eof()

    def abort(self) -> None:
        """Close without what was not sent."""
        self._pending = []
        self._transport.abort()

    def _flush(self) -> None:
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        if pending:
            self._transport.write(pending[0] if len(pending) == 1 else b"".join(pending))
