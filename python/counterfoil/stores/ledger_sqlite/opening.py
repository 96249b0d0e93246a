"""Open the database so that what is read can be believed, and become its owner.

The write-ahead log is checkpointed and truncated first: after an unclean end or a failed sync its pages may
be in the cache only, and a row in them is not the truth yet (decision L30).
"""

from __future__ import annotations

import secrets
import sqlite3
import sys
from pathlib import Path

import counterfoil.stores.ledger_sqlite.schema as schema
from counterfoil.errors import (
    CounterfoilError,
    LedgerBusy,
    LedgerCorrupt,
    LedgerFailed,
    LedgerReadOnly,
    UnsafeStore,
)
from counterfoil.stores.ledger_sqlite.guard import ControlTexts, Guard
from counterfoil.stores.ledger_sqlite.statements import OwnStatements

#: How many steps of SQLite's machine pass between two looks at the clock.
_STEPS_PER_LOOK = 2_000
_CACHED_STATEMENTS = 256


def connect(
    path: Path, *, busy_s: float, guard: Guard, control: ControlTexts, foreign_keys: bool
) -> sqlite3.Connection:
    """Open the one connection that writes; nothing has been read yet.

    Raises LedgerReadOnly, LedgerCorrupt, LedgerBusy, or UnsafeStore where the file cannot have a write-
    ahead log.
    """
    try:
        connection = sqlite3.connect(
            path, timeout=busy_s, isolation_level=None, cached_statements=_CACHED_STATEMENTS
        )
        try:
            _set_up(OwnStatements(connection, control.comment), foreign_keys=foreign_keys)
            empty_log(connection)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise translate(error) from error
    connection.set_authorizer(guard.authorize)
    connection.set_progress_handler(guard.interrupt, _STEPS_PER_LOOK)
    return connection


def _set_up(connection: OwnStatements, *, foreign_keys: bool) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise UnsafeStore(f"the database cannot have a write-ahead log here (journal mode stays {mode!r})")
    connection.execute("PRAGMA synchronous = FULL")
    if sys.platform == "darwin":
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
    connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")


def empty_log(connection: sqlite3.Connection) -> None:
    """Bring the whole write-ahead log into the database and to the disk; raises LedgerBusy if a reader
    prevents it.
    """
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise LedgerBusy(
            "another connection reads the database without end: no row can be believed before it stops"
        )


def take_over(connection: sqlite3.Connection, control: ControlTexts) -> tuple[schema.Meta, bool]:
    """Make the tables where they are missing, raise the fence, and say whether the last owner ended
    cleanly.
    """
    own = OwnStatements(connection, control.comment)
    try:
        connection.execute(control.begin)
        try:
            schema.create(own, secrets.token_bytes(32))
            before = schema.read_meta(own)
            own.execute("UPDATE counterfoil_meta SET fence = fence + 1, clean = 0 WHERE id = 1")
            meta = schema.read_meta(own)
            connection.execute(control.commit)
        except BaseException:
            if connection.in_transaction:
                connection.execute(control.rollback)
            raise
    except sqlite3.Error as error:
        raise translate(error) from error
    return meta, before.clean


def translate(error: sqlite3.Error, *, ambiguous: bool = False) -> CounterfoilError:
    """Give the typed error for one of SQLite's about the file itself."""
    code = getattr(error, "sqlite_errorcode", None)
    primary = code & 0xFF if code is not None else None
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    match primary:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return LedgerBusy(
                f"another connection holds the database ({name}): nothing was written, try again"
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN:
            return LedgerReadOnly(f"the database cannot be opened for writing ({name})")
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return LedgerCorrupt(
                f"the file is no sound SQLite database ({name}): restore it, do not go on with it"
            )
        case sqlite3.SQLITE_FULL:
            return LedgerFailed(f"the disk is full ({name})", ambiguous)
        case _:
            return LedgerFailed(f"the database refused a write ({name})", ambiguous)


def is_store_failure(error: BaseException | None) -> bool:
    """Say whether an error is the disk's and not the statement's."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
    )
