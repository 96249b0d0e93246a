"""What is told of one event, and to whom: its ticket, and the application where nothing was completed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import anyio
import msgspec

from counterfoil.handlers import Delivery
from counterfoil.model.ledger_keys import idempotency_key_of
from counterfoil.model.ledger_verdicts import (
    Asked,
    ClaimAnswer,
    Claimed,
    Conflict,
    Expired,
    Known,
    Running,
    Settled,
)
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol.ledger_steps import Settlement
from counterfoil.stores.tickets import Ticket, wake

Policy = Literal["end_stream", "park"]


class DispatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one event.

    `repeated` says that it was settled before, `ends_stream` that nothing behind it is run until the
    application reopens the stream, `processed` is the stream's mark where the ledger told it.
    """

    delivery: Delivery
    outcome: OutcomeToken
    why: str = ""
    evidence: str = ""
    idempotency_key: str = ""
    repeated: bool = False
    ends_stream: bool = False
    processed: int | None = None
    error: BaseException | None = None


class DispatchTicket(Ticket[DispatchReport]):
    """A ticket for one event; `outcome` is `pending` or what became of it."""

    def __init__(self, delivery: Delivery) -> None:
        super().__init__()
        self._delivery = delivery
        self._scope: anyio.CancelScope | None = None
        #: The event's work, where the ledger has it before its turn.
        self.early: Ticket[ClaimAnswer | Settled] | None = None

    def give_early(self, give: Callable[[], Ticket[ClaimAnswer | Settled]]) -> bool:
        """Give the ledger the event's work before its turn; False when it was withdrawn."""
        with self._lock:
            if self._outcome is None:
                self.early = give()
            return self._outcome is None

    def cancel(self) -> None:
        """Cancel the run, from the dispatcher's own loop: not begun means not applied, begun may be a
        doubt.  What the ledger has begun together with the event before it is done.
        """
        if not self.withdraw() and self._scope is not None:
            self._scope.cancel()

    def _let_go(self) -> bool:
        return self.early is None or self.early.withdraw()

    def _withdrawn(self) -> tuple[DispatchReport | None, BaseException | None]:
        return refusal_of(self._delivery, "cancelled"), None


class Reporter:
    """Puts outcomes into reports, by the policies of one dispatcher, and settles tickets with them."""

    def __init__(
        self,
        *,
        on_failed: Policy,
        on_indeterminate: Policy,
        on_report: Callable[[DispatchReport], None] | None,
    ) -> None:
        self._on_failed = on_failed
        self._on_indeterminate = on_indeterminate
        self._on_report = on_report

    def answered(self, delivery: Delivery, answer: ClaimAnswer | Settled) -> DispatchReport:
        """Put what the ledger found into a report; an event settled before is acknowledged again."""
        key = idempotency_key_of(answer.key)
        match answer:
            case Settled():
                return DispatchReport(
                    delivery=delivery,
                    outcome=OutcomeToken.COMPLETED,
                    idempotency_key=key,
                    processed=answer.processed,
                )
            case Known():
                row = answer.row
                if row is None:
                    return DispatchReport(
                        delivery=delivery,
                        outcome=OutcomeToken.COMPLETED,
                        repeated=True,
                        idempotency_key=key,
                    )
                outcome = row.outcome if row.outcome is not None else OutcomeToken.COMPLETED
                if answer.fresh:
                    settlement = Settlement(outcome=outcome, why=row.why, evidence=row.evidence)
                    return self._outcome(delivery, settlement, key)
                return DispatchReport(
                    delivery=delivery,
                    outcome=outcome,
                    why=row.why,
                    evidence=row.evidence,
                    repeated=True,
                    idempotency_key=key,
                )
            case Conflict():
                evidence = "the same event came with other bytes than before"
                settlement = Settlement(
                    outcome=OutcomeToken.NOT_APPLIED, why="fingerprint", evidence=evidence
                )
                return self._outcome(delivery, settlement, key)
            case Expired() | Asked() | Running() | Claimed():
                settlement = Settlement(
                    outcome=OutcomeToken.INDETERMINATE,
                    why="expired",
                    evidence="the key was seen before, and what became of it is forgotten",
                )
                return self._outcome(delivery, settlement, key)

    def settled(
        self,
        delivery: Delivery,
        key: str,
        settlement: Settlement,
        error: BaseException | None = None,
        processed: int | None = None,
    ) -> DispatchReport:
        """Put what a run of this process came to into a report."""
        report = self._outcome(delivery, settlement, key)
        return msgspec.structs.replace(report, error=error, processed=processed)

    def _outcome(self, delivery: Delivery, settlement: Settlement, key: str) -> DispatchReport:
        match settlement.outcome:
            case OutcomeToken.COMPLETED:
                ends = False
            case OutcomeToken.FAILED:
                ends = self._on_failed == "end_stream"
            case OutcomeToken.INDETERMINATE:
                ends = self._on_indeterminate == "end_stream"
            case OutcomeToken.NOT_APPLIED:
                ends = True
        return DispatchReport(
            delivery=delivery,
            outcome=settlement.outcome,
            why=settlement.why,
            evidence=settlement.evidence,
            idempotency_key=key,
            ends_stream=ends,
        )

    def finish(self, ticket: DispatchTicket, report: DispatchReport) -> None:
        """Settle a ticket, once, and tell the application where nothing was completed."""
        if ticket.outcome != "pending":
            return
        is_told = report.outcome is not OutcomeToken.COMPLETED and not report.repeated
        try:
            if self._on_report is not None and is_told:
                self._on_report(report)
        finally:
            # Whoever waits for the ticket learns the truth, whatever the application's function raises.
            wake(ticket.settle(report, outcome=report.outcome))


def refusal_of(delivery: Delivery, why: str, evidence: str = "") -> DispatchReport:
    """Report an event that certainly was not applied."""
    return DispatchReport(delivery=delivery, outcome=OutcomeToken.NOT_APPLIED, why=why, evidence=evidence)
