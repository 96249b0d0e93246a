"""The ledger at its owner: every request of this process and of the others is put here, from one event loop.

It remembers who carries on which call without a key, so that no identical one is begun beside a call that a
dead process has left.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any

import msgspec

from counterfoil.adapters.host_ledger.lives import LIFE_BYTES, Lives
from counterfoil.adapters.host_ledger.performing import put_request
from counterfoil.adapters.host_ledger.wire import (
    AwaitInput,
    Claim,
    CloseCall,
    Release,
    Request,
    Settle,
    TakeCall,
)
from counterfoil.errors import CallElsewhere, CallLeft
from counterfoil.model.ledger_keys import UnkeyedCall, encode_key, read_unkeyed
from counterfoil.model.ledger_rows import LedgerRow, is_unresolved
from counterfoil.model.ledger_verdicts import Claimed
from counterfoil.native import Scope
from counterfoil.stores.ledger_sqlite.ledger import SqliteLedger
from counterfoil.stores.tickets import Ticket

#: How long it takes at most until all processes know who has taken a call over.
_NEWS_S = 0.5
_REMEMBERED = 4_096


class _Carried(msgspec.Struct):
    """Who carries a call on, and since when it is another one than began it."""

    identity: bytes
    life: bytes
    taken_at: float | None = None
    is_gone: bool = False


class OwnedLedger:
    """An open ledger, for the lives of one directory."""

    def __init__(self, ledger: SqliteLedger, lives: Lives) -> None:
        self.ledger = ledger
        self._lives = lives
        self._limit = ledger.limits.ledger_open_rows
        self._calls: OrderedDict[bytes, _Carried] = OrderedDict()
        self._equal: dict[bytes, set[bytes]] = {}
        #: What each other life carries on, by stored key, and the lives that were given up.
        self._runs: dict[bytes, dict[bytes, Claimed]] = {}
        self._over: OrderedDict[bytes, None] = OrderedDict()

    async def read(self) -> None:
        """Learn what former owners and their guests have left; before the first request."""
        after = b""
        while page := await self.ledger.kept_calls(after):
            for call in page:
                after = call.key
                if not call.row.delivered or is_unresolved(call.row):
                    _, key = read_unkeyed(call.key)
                    self._note(call.key, key.identity, call.row.run[:LIFE_BYTES])

    def put(self, request: Request, life: bytes) -> Ticket[Any]:
        """Put a request of a life.  Raises CallLeft, CallElsewhere, and what the ledger raises at once."""
        match request:
            case Claim() if isinstance(request.intent.key, UnkeyedCall):
                self._begin(request.intent.scope, request.intent.key, life)
            case CloseCall():
                self._forget(request.claimed.key)
            case TakeCall():
                return self._take(request, life)
            case _:
                pass
        return put_request(self.ledger, request)

    def note_end(self, request: Request, value: object, life: bytes) -> None:
        """Note what a request of another life ended in: what it carries on since then, or no more.

        Called from any thread, and for a life that is over too: it was asked for before.
        """
        runs = self._runs.setdefault(life, {})
        if isinstance(value, Claimed):
            runs[value.key] = value
            if life in self._over:
                self.give_up(life)
        elif isinstance(request, Settle | Release | AwaitInput):
            runs.pop(request.claimed.key, None)

    def give_up(self, life: bytes) -> None:
        """Nobody carries on what a dead life did."""
        self._over[life] = None
        if len(self._over) > _REMEMBERED:
            self._over.popitem(last=False)
        for claimed in list(self._runs.pop(life, {}).values()):
            self.ledger.abandon(claimed)

    def _begin(self, scope: Scope, call: UnkeyedCall, life: bytes) -> None:
        """Note who begins a call, before it is written; raises CallLeft."""
        stored = encode_key(scope, call)
        if stored in self._calls:
            return  # asked before, of a former owner perhaps
        now = time.monotonic()
        others = [self._calls[key] for key in self._equal.get(call.identity, ())]
        others = [each for each in others if each.life != life and not each.is_gone]
        if any(not self._lives.has(each.life) for each in others):
            raise CallLeft("a process that died has left an identical call: take it over, or ask again")
        if any(each.taken_at is not None and now - each.taken_at < _NEWS_S for each in others):
            raise CallElsewhere("another process has just taken an identical call over: it may be there")
        self._note(stored, call.identity, life)

    def _take(self, request: TakeCall, life: bytes) -> Ticket[Any]:
        former = request.call.row.run[:LIFE_BYTES]
        if not self._lives.has(former):
            self.give_up(former)
        ticket = put_request(self.ledger, request)
        key = request.call.key
        carried = self._calls.get(key)
        if carried is not None and carried.life != life:
            # Whether it is there to be taken is known when it is written; who asks meanwhile asks again.
            carried.taken_at = time.monotonic()

            def note() -> None:
                if ticket.outcome != "completed":
                    return
                if isinstance(ticket.result(), LedgerRow):
                    carried.life = life
                elif carried.life == former:
                    carried.is_gone = True  # it was handed over, or has aged out

            ticket.when_settled(note)
        return ticket

    def _note(self, key: bytes, identity: bytes, life: bytes) -> None:
        self._calls[key] = _Carried(identity, life)
        self._equal.setdefault(identity, set()).add(key)
        if len(self._calls) > self._limit:
            self._forget(next(iter(self._calls)))

    def _forget(self, key: bytes) -> None:
        carried = self._calls.pop(key, None)
        if carried is None:
            return
        equal = self._equal[carried.identity]
        equal.discard(key)
        if not equal:
            del self._equal[carried.identity]
