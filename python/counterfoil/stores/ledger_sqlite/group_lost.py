"""What ends a group early: a handler that rolled it back, a refused commit, the disk."""

from __future__ import annotations

import sqlite3

import counterfoil.stores.ledger_sqlite.opening as opening
from counterfoil.errors import TransactionLost
from counterfoil.stores.ledger_sqlite.jobs import HandlerJob


class GroupLost(Exception):
    """The transaction of a group is gone, and with it everything that was done in it."""

    def __init__(
        self, cause: BaseException, culprit: HandlerJob | None = None, *, at_commit: bool = False
    ) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.culprit = culprit
        self.at_commit = at_commit

    def for_callers(self) -> BaseException:
        """Give the error that those are told whose jobs are not done again."""
        cause = self.cause
        if isinstance(cause, sqlite3.IntegrityError):
            return TransactionLost(f"the commit was refused: {cause}")
        if isinstance(cause, sqlite3.Error):
            ambiguous = self.at_commit and opening.is_store_failure(cause)
            return opening.translate(cause, ambiguous=ambiguous)
        return cause
