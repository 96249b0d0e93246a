"""The ledger in SQLite: one writer thread, one connection, many effects per durable commit."""

from counterfoil.stores.ledger_sqlite.joined import JoinedLedger as JoinedLedger
from counterfoil.stores.ledger_sqlite.ledger import SqliteLedger as SqliteLedger
