"""Read a ledger beside its owner, or without one: what a person asks at three in the morning.

It opens the database read-only, takes no lock and changes nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import msgspec

import counterfoil.stores.ledger_sqlite.opening as opening
import counterfoil.stores.ledger_sqlite.schema as schema
from counterfoil.errors import CounterfoilError, LedgerCorrupt
from counterfoil.model.ledger_keys import KeyWords, describe_key, is_stream
from counterfoil.model.ledger_rows import StreamMark, decode_mark, decode_row
from counterfoil.model.ledger_verdicts import Entry
from counterfoil.protocol.ledger_steps import check_witness
from counterfoil.stores.ledger_entries import describe_entry, waits_for_a_person
from counterfoil.stores.ledger_sqlite.owner_lock import is_owned


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """One stream, and how far it is processed."""

    words: KeyWords
    mark: StreamMark


class LedgerReader:
    """A view of a ledger's file; `with` opens and closes it.

    Raises LedgerReadOnly where there is no file, LedgerCorrupt, LedgerSchemaNewer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        name = quote(str(self.path.resolve()))
        try:
            self._connection = sqlite3.connect(f"file:{name}?mode=ro", uri=True, isolation_level=None)
            if not schema.has_ledger(self._connection):
                raise LedgerCorrupt(f"{self.path.name} holds no ledger")
            self.meta = schema.read_meta(self._connection)
        except sqlite3.Error as error:
            self._close()
            raise opening.translate(error) from error
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @property
    def is_provisional(self) -> bool:
        """Say whether the last owner ended uncleanly: rows may change when the next one opens (decision
        L30).
        """
        return not self.meta.clean and not is_owned(self.path)

    def entries(self) -> Iterator[Entry]:
        """Go through every row, in the order of keys."""
        for key, body in self._query("SELECT key, body FROM counterfoil_rows ORDER BY key"):
            if not is_stream(key):  # the end of a stream, which its mark tells
                yield describe_entry(key, decode_row(body))

    def indeterminate(self) -> Iterator[Entry]:
        """Go through the rows that wait for a person."""
        # A doubt of a call without a key has an age; every other one stays until it is resolved.
        query = (
            "SELECT key, body FROM counterfoil_rows WHERE expires_at IS NULL "
            "OR (state = 'settled' AND outcome = 'indeterminate') ORDER BY key"
        )
        # With a living owner its own intents are runs in progress; without one nobody runs them.
        fence = self.meta.fence if is_owned(self.path) else self.meta.fence + 1
        for key, body in self._query(query):
            row = decode_row(body)
            if waits_for_a_person(key, row, fence):
                yield describe_entry(key, row)

    def streams(self) -> Iterator[StreamState]:
        """Go through every stream, in the order of keys."""
        for key, body in self._query("SELECT key, body FROM counterfoil_streams ORDER BY key"):
            yield StreamState(words=describe_key(key), mark=decode_mark(body))

    def problems(self) -> Iterator[str]:
        """Check the file and the proof of every cursor; yields nothing for a sound ledger."""
        for (line,) in self._query("PRAGMA integrity_check(10)"):
            if line != "ok":
                yield f"database: {line}"
        for key, body in self._query("SELECT key, body FROM counterfoil_streams"):
            try:
                problem = check_witness(decode_mark(body))
            except (CounterfoilError, msgspec.MsgspecError) as error:
                problem = f"unreadable: {error}"
            if problem is not None:
                yield f"stream {describe_key(key).stream}: {problem}"
        for key, state, body in self._query("SELECT key, state, body FROM counterfoil_rows"):
            try:
                row = decode_row(body)
            except (CounterfoilError, msgspec.MsgspecError) as error:
                yield f"row {describe_key(key).key}: unreadable: {error}"
                continue
            if row.state.value != state:
                yield f"row {describe_key(key).key}: its column says {state}, its record {row.state}"
            if row.fence > self.meta.fence:
                yield f"row {describe_key(key).key}: written by owner {row.fence}, after {self.meta.fence}"

    def _query(self, query: str) -> Iterator[tuple[Any, ...]]:
        assert self._connection is not None
        try:
            yield from self._connection.execute(query)
        except sqlite3.Error as error:
            raise opening.translate(error) from error
