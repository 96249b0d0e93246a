"""What the tables need of a connection: run a statement, give plain tuples.

The owner's connection is one as it is; a caller's connection is wrapped, because its rows may be anything.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, Protocol


class Statements(Protocol):
    """Runs statements."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Run one statement."""
        ...

    def executemany(self, sql: str, rows: Iterable[Any], /) -> sqlite3.Cursor:
        """Run one statement for each of `rows`."""
        ...


class PlainStatements:
    """A connection's statements, whatever row factory it has."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Run one statement."""
        return self._cursor().execute(sql, parameters)

    def executemany(self, sql: str, rows: Iterable[Any], /) -> sqlite3.Cursor:
        """Run one statement for each of `rows`."""
        return self._cursor().executemany(sql, rows)

    def _cursor(self) -> sqlite3.Cursor:
        cursor = self._connection.cursor()
        cursor.row_factory = None
        return cursor
