"""What a handler may do with the connection: SQLite asks here before it compiles a statement, and while one
runs.

Statements of our own pass because a flag says that no handler runs; their texts carry a random comment,
because the driver caches compiled statements by text and a cached one is not asked about again.
"""

from __future__ import annotations

import secrets
import sqlite3
import time

#: Tables of ours begin with this; a handler touches none of them.
OWN_PREFIX = "counterfoil_"
_REFUSED = frozenset(
    {
        sqlite3.SQLITE_ATTACH,
        sqlite3.SQLITE_DETACH,
        sqlite3.SQLITE_PRAGMA,
        sqlite3.SQLITE_SAVEPOINT,
        sqlite3.SQLITE_TRANSACTION,
    }
)


class ControlTexts:
    """Transaction control in words that nobody else can send."""

    def __init__(self) -> None:
        #: What every statement of ours ends in.
        self.comment = comment = f"/* {secrets.token_hex(8)} */"
        self.begin = f"BEGIN IMMEDIATE {comment}"
        self.commit = f"COMMIT {comment}"
        self.rollback = f"ROLLBACK {comment}"
        self.savepoint = f"SAVEPOINT counterfoil {comment}"
        self.release = f"RELEASE counterfoil {comment}"
        self.rollback_to = f"ROLLBACK TO counterfoil {comment}"


class Guard:
    """Knows whether a handler runs now, and until when it may."""

    def __init__(self) -> None:
        self.handler_runs = False
        #: Until when the handler that runs now may, on the monotonic clock.
        self.deadline = 0.0

    def enter(self, deadline: float) -> None:
        """Let a handler begin, that may run until `deadline` on the monotonic clock."""
        self.deadline = deadline
        self.handler_runs = True

    def leave(self) -> None:
        """The handler has returned."""
        self.handler_runs = False

    def authorize(
        self, action: int, one: str | None, two: str | None, _database: str | None, _source: str | None
    ) -> int:
        """Answer SQLite's question about one action of a statement that it compiles."""
        if not self.handler_runs:
            return sqlite3.SQLITE_OK
        if action in _REFUSED:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION:
            return sqlite3.SQLITE_DENY if two == "load_extension" else sqlite3.SQLITE_OK
        for name in (one, two):
            if name is not None and name.lower().startswith(OWN_PREFIX):
                return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def interrupt(self) -> int:
        """Answer SQLite's question, every few thousand steps, whether to stop the statement."""
        return 1 if self.handler_runs and time.monotonic() > self.deadline else 0
