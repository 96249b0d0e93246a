"""Carries a request out on a ledger that is open here, for this process and for others alike."""

from __future__ import annotations

from typing import Any, Literal, assert_never, cast

from counterfoil.adapters.host_ledger.wire import (
    Abandon,
    AwaitInput,
    BeginCancelling,
    BeginStream,
    Claim,
    ClaimAgain,
    CloseCall,
    KeptCalls,
    Mark,
    MarkDelivered,
    NoteAdopted,
    OpenPage,
    ReadEntry,
    Record,
    Release,
    Request,
    Resolve,
    Settle,
    Skip,
    TakeCall,
)
from counterfoil.stores.ledger_sqlite.ledger import SqliteLedger
from counterfoil.stores.tickets import Ticket, settled_ticket


def put_request(ledger: SqliteLedger, request: Request) -> Ticket[Any]:
    """Put a request to the ledger; raises what the ledger raises at once, such as LedgerBusy."""
    match request:
        case Claim():
            return ledger.claim(request.intent)
        case Settle():
            return ledger.settle(request.claimed, request.settlement)
        case CloseCall():
            return ledger.close_call(request.claimed)
        case MarkDelivered():
            return ledger.mark_delivered(request.claimed)
        case Release():
            return ledger.release(request.claimed)
        case AwaitInput():
            return ledger.await_input(request.claimed, request.question)
        case BeginCancelling():
            return ledger.begin_cancelling(request.claimed)
        case NoteAdopted():
            return ledger.note_adopted(request.claimed)
        case KeptCalls():
            return ledger.kept_calls(request.after)
        case TakeCall():
            return ledger.take_call(request.call, run=request.run)
        case Abandon():
            ledger.abandon(request.claimed)
        case Skip():
            ledger.skip(request.scope, request.place)
        case ClaimAgain():
            return ledger.claim_again(request.claimed)
        case Record():
            return ledger.record(request.intent, request.settlement)
        case BeginStream():
            return ledger.begin_stream(
                request.scope, request.place, ended=request.ended, record=request.record
            )
        case Mark():
            return ledger.mark(request.scope, server=request.server, stream=request.stream)
        case ReadEntry():
            return ledger.entry(request.scope, request.key)
        case OpenPage():
            return ledger.open_page(request.after)
        case Resolve():
            # The ledger itself refuses what is no outcome of a person's.
            outcome = cast(Literal["completed", "failed", "not_applied"], request.outcome)
            return ledger.resolve(request.entry, outcome, note=request.note)
        case _:
            assert_never(request)
    return settled_ticket()
