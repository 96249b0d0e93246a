"""The ledger's tables as a book that steps read and write, within one transaction of the writer.

Puts are kept in memory until the group is flushed, so that a group of steps costs a few statements; a step
that fails is taken out again without touching the database.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from counterfoil.model.ledger_rows import (
    LedgerRow,
    StreamMark,
    decode_mark,
    decode_row,
    encode_mark,
    encode_row,
)
from counterfoil.stores.ledger_sqlite.statements import Statements

_READ_FENCE = "SELECT fence FROM counterfoil_meta WHERE id = 1"
#: The fence and rows by one statement; it comes in a few widths, so that the driver keeps it compiled.
_READ_AHEAD = (
    "SELECT m.fence, r.key, r.body, r.expires_at IS NULL FROM counterfoil_meta m "
    "LEFT JOIN counterfoil_rows r ON r.key IN ({}) WHERE m.id = 1"
)
_WIDEST_READ = 256
_READS_AHEAD = {width: _READ_AHEAD.format(", ".join("?" * width)) for width in (1, 4, 16, 64, _WIDEST_READ)}
_READ_ROW = "SELECT body, expires_at IS NULL FROM counterfoil_rows WHERE key = ?"
_READ_MARK = "SELECT body FROM counterfoil_streams WHERE key = ?"
_PUT_ROW = (
    "INSERT OR REPLACE INTO counterfoil_rows (key, state, outcome, expires_at, body) VALUES (?, ?, ?, ?, ?)"
)
#: One statement for several marks takes two thirds of what it takes to send one for each.
_PUTS_MARKS = [
    (
        width,
        "INSERT OR REPLACE INTO counterfoil_streams (key, body) VALUES " + ", ".join(["(?, ?)"] * width),
    )
    for width in (64, 16, 4, 1)
]
_DROP_ROW = "DELETE FROM counterfoil_rows WHERE key = ?"
_COUNT_OPEN = (
    "SELECT count(*) FROM counterfoil_rows INDEXED BY counterfoil_rows_open WHERE expires_at IS NULL"
)
_READ_OPEN = (
    "SELECT key FROM counterfoil_rows INDEXED BY counterfoil_rows_open "
    "WHERE expires_at IS NULL AND key > ? ORDER BY key LIMIT ?"
)
_DROP_MARK = "DELETE FROM counterfoil_streams WHERE key = ?"
_READ_BETWEEN = "SELECT key FROM counterfoil_rows WHERE key > ? AND key < ? ORDER BY key LIMIT ?"
_READ_STREAMS = "SELECT key FROM counterfoil_streams WHERE key > ? ORDER BY key LIMIT ?"
_READ_EXPIRED = "SELECT key FROM counterfoil_rows WHERE expires_at <= ? ORDER BY expires_at LIMIT ?"
#: Marks that are kept decoded between groups; the owner is the only one who writes them.
_MARKS_KEPT = 4096

#: A row as it is now, and when it expires; (None, 0.0) is no row.
_Held = tuple[LedgerRow | None, float | None]
_ABSENT: _Held = (None, 0.0)
#: Stands for a mark that was dropped in this group.
_GONE = StreamMark(epoch="")


class SqliteBook:
    """One per connection; `begin` and `flush` or `forget` around each group."""

    def __init__(self, connection: Statements) -> None:
        self._connection = connection
        self._rows: dict[bytes, _Held] = {}
        self._read: dict[bytes, _Held] = {}
        #: Rows as they are stored, read before anybody asked; None is no row.
        self._ahead: dict[bytes, tuple[bytes, int] | None] = {}
        self._marks: dict[bytes, StreamMark] = {}
        self._kept: dict[bytes, StreamMark | None] = {}
        self._undo: list[tuple[dict[bytes, Any], bytes, Any]] = []
        self._open: int = connection.execute(_COUNT_OPEN).fetchone()[0]
        self._open_before = self._open
        self._open_before_step = self._open

    # --- what steps use ---

    def row(self, key: bytes) -> LedgerRow | None:
        """Give the row of a key."""
        return self._held(key)[0]

    def put_row(self, key: bytes, row: LedgerRow, expires_at: float | None) -> None:
        """Write a row; `expires_at` None means never."""
        self._replace_row(key, (row, expires_at))

    def drop_row(self, key: bytes) -> None:
        """Remove a row."""
        if self._held(key) is not _ABSENT:
            self._replace_row(key, _ABSENT)

    def mark(self, stream: bytes) -> StreamMark | None:
        """Give the mark of a stream."""
        mark = self._marks.get(stream)
        if mark is not None:
            return None if mark is _GONE else mark
        if stream not in self._kept:
            found = self._connection.execute(_READ_MARK, (stream,)).fetchone()
            self._kept[stream] = decode_mark(found[0]) if found is not None else None
        return self._kept[stream]

    def put_mark(self, stream: bytes, mark: StreamMark) -> None:
        """Write the mark of a stream."""
        self._undo.append((self._marks, stream, self._marks.get(stream)))
        self._marks[stream] = mark

    def drop_mark(self, stream: bytes) -> None:
        """Remove the mark of a stream."""
        self.put_mark(stream, _GONE)

    def open_rows(self) -> int:
        """Count the rows that never expire."""
        return self._open

    def open_keys(self, after: bytes, limit: int) -> list[bytes]:
        """Give the keys of rows that never expire, above `after`, in their order."""
        return [key for (key,) in self._connection.execute(_READ_OPEN, (after, limit))]

    def keys_between(self, after: bytes, before: bytes, limit: int) -> list[bytes]:
        """Give the keys of rows above `after` and below `before`, in their order."""
        return [key for (key,) in self._connection.execute(_READ_BETWEEN, (after, before, limit))]

    def stream_keys(self, after: bytes, limit: int) -> list[bytes]:
        """Give the keys of streams above `after`, in their order."""
        return [key for (key,) in self._connection.execute(_READ_STREAMS, (after, limit))]

    # --- what the writer uses ---

    @property
    def is_dirty(self) -> bool:
        """Say whether anything is to be written."""
        return bool(self._rows or self._marks)

    @property
    def has_rows(self) -> bool:
        """Say whether rows are to be written, and not only marks."""
        return bool(self._rows)

    def read_ahead(self, keys: list[bytes]) -> int:
        """Give the fence of the ledger's present owner, and read the rows that will be asked for with it."""
        width = 1
        while width < len(keys):
            width *= 4
        if not keys or width > _WIDEST_READ:
            return int(self._connection.execute(_READ_FENCE).fetchone()[0])
        padded = keys + keys[-1:] * (width - len(keys))
        found = self._connection.execute(_READS_AHEAD[width], padded).fetchall()
        ahead = self._ahead = dict.fromkeys(keys)
        for _, key, body, is_open in found:
            if key is not None:
                ahead[key] = (body, is_open)
        return int(found[0][0])

    def begin_step(self) -> None:
        """Remember this place, so that the step that follows can be taken out."""
        self._undo.clear()
        self._open_before_step = self._open

    def undo_step(self) -> None:
        """Take the last step out."""
        for where, key, old in reversed(self._undo):
            if old is None:
                where.pop(key, None)
            else:
                where[key] = old
        self._undo.clear()
        self._open = self._open_before_step

    def expired(self, now: float, limit: int) -> list[bytes]:
        """Give keys whose time has come, the oldest first."""
        return [key for (key,) in self._connection.execute(_READ_EXPIRED, (now, limit))]

    def flush(self) -> None:
        """Write everything into the open transaction."""
        puts = [
            (
                key,
                row.state.value,
                row.outcome.value if row.outcome is not None else None,
                expires_at,
                encode_row(row),
            )
            for key, (row, expires_at) in self._rows.items()
            if row is not None
        ]
        # A row that was put and dropped in this group was never in the table.
        drops = [
            (key,)
            for key, (row, _) in self._rows.items()
            if row is None and self._read.get(key, _ABSENT) is not _ABSENT
        ]
        if puts:
            self._connection.executemany(_PUT_ROW, puts)
        if drops:
            self._connection.executemany(_DROP_ROW, drops)
        marks = [(key, encode_mark(mark)) for key, mark in self._marks.items() if mark is not _GONE]
        self._put_marks(marks)
        if len(marks) < len(self._marks):
            gone = [(key,) for key, mark in self._marks.items() if mark is _GONE]
            self._connection.executemany(_DROP_MARK, gone)

    def _put_marks(self, marks: list[tuple[bytes, bytes]]) -> None:
        done, left = 0, len(marks)
        for width, statement in _PUTS_MARKS:
            while left >= width:
                self._connection.execute(statement, [*chain(*marks[done : done + width])])
                done += width
                left -= width

    def accept(self) -> None:
        """The group is committed: what was put is the truth."""
        if len(self._kept) > _MARKS_KEPT:
            self._kept.clear()
        for key, mark in self._marks.items():
            self._kept[key] = None if mark is _GONE else mark
        self._open_before = self._open
        self._clear()

    def forget(self) -> None:
        """The group was rolled back: nothing of it is true."""
        self._kept.clear()
        self._open = self._open_before
        self._clear()

    def _clear(self) -> None:
        self._rows.clear()
        self._read.clear()
        self._ahead.clear()
        self._marks.clear()
        self._undo.clear()

    def _held(self, key: bytes) -> _Held:
        held = self._rows.get(key) or self._read.get(key)
        if held is None:
            if key in self._ahead:
                found = self._ahead[key]
            else:
                found = self._connection.execute(_READ_ROW, (key,)).fetchone()
            held = (decode_row(found[0]), None if found[1] else 0.0) if found is not None else _ABSENT
            self._read[key] = held
        return held

    def _replace_row(self, key: bytes, held: _Held) -> None:
        old = self._held(key)
        self._open += (held[1] is None) - (old[1] is None)
        self._undo.append((self._rows, key, self._rows.get(key)))
        self._rows[key] = held
