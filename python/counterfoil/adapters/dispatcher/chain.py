"""The events of one stream that the ledger is given before their turn, so that they share a commit.

Each is told to follow the one before it, and the ledger runs none whose forerunner is not completed; at its
turn such an event is given once more, by itself.  The dispatcher of streams calls it, nobody else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from counterfoil.adapters.dispatcher.reports import DispatchTicket
from counterfoil.adapters.dispatcher.run import Run
from counterfoil.handlers import Delivery
from counterfoil.stores.tickets import Ticket

#: How many events of one stream wait in the ledger; more would only make other streams wait.
_LONGEST = 64


class Waiting:
    """An event that waits for its turn; `run` is there once the ledger has it."""

    __slots__ = ("delivery", "run", "ticket")

    def __init__(self, delivery: Delivery, ticket: DispatchTicket) -> None:
        self.delivery = delivery
        self.ticket = ticket
        self.run: Run | None = None


class Chain:
    """The front of one stream's queue, as far as the ledger has it already."""

    __slots__ = ("_is_whole", "_last", "_length")

    def __init__(self) -> None:
        self._length = 0
        self._last: Ticket[Any] | None = None
        self._is_whole = True

    def take_one(self) -> None:
        """The first event has its turn, and is no longer in the queue."""
        self._length = max(0, self._length - 1)

    def begin_anew(self, work: Ticket[Any]) -> None:
        """The event whose turn it is was given by itself: what the ledger has of those behind it follows
        something else, and none of that will be run.
        """
        self._last = work
        self._is_whole = self._length == 0

    def extend(self, waiting: deque[Waiting], give: Callable[[Waiting, Ticket[Any]], bool]) -> None:
        """Give the ledger more of what waits, by `give`, until that refuses one."""
        if not self._is_whole or self._last is None:
            return
        for place in range(self._length, min(len(waiting), _LONGEST)):
            one = waiting[place]
            try:
                is_given = give(one, self._last)
            except Exception:
                return  # whatever it is: at its own turn it is told
            if not is_given or one.ticket.early is None:
                return
            self._last = one.ticket.early
            self._length += 1
