"""The tables of a ledger and their version; `docs/disk.md` describes them for people.

Every name begins with `counterfoil_`, because the tables lie in the application's own database.
"""

from __future__ import annotations

import msgspec

from counterfoil.errors import LedgerCorrupt, LedgerSchemaNewer
from counterfoil.stores.ledger_sqlite.statements import Statements

SCHEMA_VERSION = 1

_TABLES = (
    """CREATE TABLE IF NOT EXISTS counterfoil_meta (
        id INTEGER PRIMARY KEY CHECK (id = 1), schema_version INTEGER NOT NULL, fence INTEGER NOT NULL,
        clean INTEGER NOT NULL, secret BLOB NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS counterfoil_rows (
        key BLOB PRIMARY KEY, state TEXT NOT NULL, outcome TEXT, expires_at REAL, body BLOB NOT NULL)
        WITHOUT ROWID""",
    """CREATE INDEX IF NOT EXISTS counterfoil_rows_open ON counterfoil_rows (key)
        WHERE expires_at IS NULL""",
    """CREATE INDEX IF NOT EXISTS counterfoil_rows_expiry ON counterfoil_rows (expires_at)
        WHERE expires_at IS NOT NULL""",
    """CREATE TABLE IF NOT EXISTS counterfoil_streams (
        key BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID""",
)


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """What the one row of `counterfoil_meta` says."""

    schema_version: int
    fence: int
    clean: bool
    secret: bytes


def has_ledger(connection: Statements) -> bool:
    """Say whether the database holds a ledger."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'counterfoil_meta'"
    return connection.execute(query).fetchone() is not None


def read_meta(connection: Statements) -> Meta:
    """Read and check the version; raises LedgerSchemaNewer, or LedgerCorrupt where the row is missing."""
    row = connection.execute(
        "SELECT schema_version, fence, clean, secret FROM counterfoil_meta WHERE id = 1"
    ).fetchone()
    if row is None:
        raise LedgerCorrupt(
            "counterfoil_meta is empty: the ledger was not made by this program, or was damaged"
        )
    version, fence, clean, secret = row
    if version > SCHEMA_VERSION:
        raise LedgerSchemaNewer(
            f"this ledger has schema {version}, and this release reads {SCHEMA_VERSION}: upgrade counterfoil"
        )
    return Meta(
        schema_version=version,
        fence=fence,
        clean=bool(clean),
        secret=secret,
    )


def create(connection: Statements, secret: bytes) -> None:
    """Make the tables, inside a transaction of the caller's."""
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute(
        "INSERT OR IGNORE INTO counterfoil_meta VALUES (1, ?, 0, 1, ?)", (SCHEMA_VERSION, secret)
    )
