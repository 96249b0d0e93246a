"""What the tables need of a connection: run a statement, give plain tuples.

The owner's connection is wrapped, because the driver keeps texts compiled that handlers could send as well;
a caller's connection is, because its rows may be anything.
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


class OwnStatements:
    """The owner's statements, in words that nobody else can send: each ends in its random comment."""

    def __init__(self, connection: sqlite3.Connection, comment: str) -> None:
        self._connection = connection
        self._texts = _Commented(comment)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Run one statement."""
        return self._connection.execute(self._texts[sql], parameters)

    def executemany(self, sql: str, rows: Iterable[Any], /) -> sqlite3.Cursor:
        """Run one statement for each of `rows`."""
        return self._connection.executemany(self._texts[sql], rows)


class _Commented(dict[str, str]):
    """Texts by their plain form, made once each."""

    def __init__(self, comment: str) -> None:
        super().__init__()
        self._comment = comment

    def __missing__(self, sql: str) -> str:
        text = self[sql] = f"{sql} {self._comment}"
        return text


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
