"""The combinations that could corrupt or lose, as far as they can be seen from here, and the warning that
names one.

It looks and raises; it repairs nothing.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import warnings
from pathlib import Path

from counterfoil.errors import UnsafeStore

#: The first releases that have the fix of the WAL-reset bug, per line; from 3.51.3 on every one has it.
_FIXED = {(3, 44): 6, (3, 50): 7, (3, 51): 3}


class UnsafeSqliteWarning(UserWarning):
    """The SQLite library has a known bug that the way the file is used can set off."""


def has_wal_reset_bug(version: tuple[int, int, int] = sqlite3.sqlite_version_info) -> bool:
    """Say whether two connections that write and checkpoint one WAL file can corrupt it in this SQLite."""
    major, minor, patch = version
    if version < (3, 7, 0) or version >= (3, 51, 3):
        return False
    fixed = _FIXED.get((major, minor))
    return fixed is None or patch < fixed


def describe_bug(where: str) -> str:
    """Name the bug, and the way out."""
    return (
        f"SQLite {sqlite3.sqlite_version} has the WAL-reset bug, which can corrupt a database that several "
        f"connections write; {where}. Use SQLite 3.51.3, 3.50.7 or 3.44.6, or write the file through one "
        "connection only."
    )


def warn_of_bug(where: str) -> None:
    """Warn, naming the bug."""
    warnings.warn(describe_bug(where), UnsafeSqliteWarning, stacklevel=3)


def check_version(*, strict: bool) -> None:
    """Refuse a SQLite with the bug if the application asked for that."""
    if strict and has_wal_reset_bug():
        raise UnsafeStore(describe_bug("strict_sqlite=True refuses it"))


def check_second_library(database: Path) -> None:
    """Refuse a file that a second SQLite library of this process has open: it would drop our lock unseen."""
    apsw = sys.modules.get("apsw")
    connections = getattr(apsw, "connections", None)
    if connections is None:
        return
    for connection in connections():
        name = connection.db_filename("main")
        if name and _is_same_file(Path(name), database):
            raise UnsafeStore(
                "apsw has this database open in this process: two SQLite libraries on one file drop each "
                "other's locks. Close it there, or keep the ledger in a file of its own"
            )


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
