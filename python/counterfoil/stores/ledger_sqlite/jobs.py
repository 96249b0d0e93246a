"""What the writer is asked to do: a step of the ledger's own, or a handler of the application with its
outcome.

A job keeps its number when it is done again after a failed commit, so that a step can recognise its own row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from counterfoil.model.ledger_verdicts import Claimed
from counterfoil.protocol.ledger_steps import Book, Intent, Moment, keys_of
from counterfoil.stores.ledger_interface import Transaction
from counterfoil.stores.tickets import Ticket


class StepJob:
    """One pure step."""

    __slots__ = ("serial", "step", "ticket")

    after = None

    def __init__(self, step: Callable[[Book, Moment], Any], serial: int) -> None:
        self.step = step
        self.serial = serial
        self.ticket: Ticket[Any] = Ticket()


class HandlerJob:
    """A transactional handler; `claimed` is set once its intent has a commit of its own (decision L22).

    With `after` it is run only behind that work, in the same commit or a later one.
    """

    __slots__ = ("after", "claimed", "handler", "intent", "keys", "serial", "ticket")

    def __init__(
        self,
        intent: Intent,
        handler: Callable[[Transaction], object],
        serial: int,
        after: Ticket[Any] | None = None,
    ) -> None:
        self.intent = intent
        self.keys = keys_of(intent)
        self.handler = handler
        self.serial = serial
        self.after = after
        self.claimed: Claimed | None = None
        self.ticket: Ticket[Any] = Ticket()


Job = StepJob | HandlerJob
