"""What a step reads and writes, all of it in one transaction; every store brings one of its own."""

from __future__ import annotations

from typing import Protocol

from counterfoil.model.ledger_rows import LedgerRow, StreamMark


class Book(Protocol):
    """What a step reads and writes; all of one transaction."""

    def row(self, key: bytes) -> LedgerRow | None: ...

    def put_row(self, key: bytes, row: LedgerRow, expires_at: float | None) -> None: ...

    def drop_row(self, key: bytes) -> None: ...

    def mark(self, stream: bytes) -> StreamMark | None: ...

    def put_mark(self, stream: bytes, mark: StreamMark) -> None: ...

    def drop_mark(self, stream: bytes) -> None: ...

    def open_rows(self) -> int:
        """Count the rows that never expire."""
        ...

    def open_keys(self, after: bytes, limit: int) -> list[bytes]:
        """Give the keys of rows that never expire, above `after`, in their order."""
        ...

    def keys_between(self, after: bytes, before: bytes, limit: int) -> list[bytes]:
        """Give the keys of rows above `after` and below `before`, in their order."""
        ...

    def stream_keys(self, after: bytes, limit: int) -> list[bytes]:
        """Give the keys of streams above `after`, in their order."""
        ...
