"""Three checks for hand-written clients whose event IDs are plain numbers.

They are the smallest form of what :func:`counterfoil.decisions.resume.classify_resume` decides with more
evidence; they hold no state, and know nothing of epochs beyond the token that the caller passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSet
from typing import Any, Literal, Protocol

from counterfoil.errors import NotApplied
from counterfoil.errors import SSEResumptionInvariantError as SSEResumptionInvariantError
from counterfoil.errors import StreamResumptionViolation as StreamResumptionViolation
from counterfoil.model.ledger_keys import LedgerKey, PayloadKey
from counterfoil.model.ledger_rows import RowKind
from counterfoil.model.ledger_verdicts import ClaimAnswer, Claimed, Entry, Settled
from counterfoil.model.tokens import OutcomeToken
from counterfoil.native import Scope
from counterfoil.protocol.ledger_steps import Intent, Settlement

__all__ = [
    "SSEResumptionInvariantError",
    "SSEresumptionInvariantError",
    "StreamResumptionViolation",
    "apply_event",
    "classify_reconnect",
    "validate_resumption",
]

#: The same exception under the spelling that is also in use.
SSEresumptionInvariantError = SSEResumptionInvariantError

Classification = Literal["resumed", "reoriginated", "unverifiable"]


def validate_resumption(
    last_event_id: int,
    replay_head_id: int,
    dispatch_log: Mapping[int, str],
    idempotent_handlers: bool,
) -> int:
    """Return the id to resume with, which is the first replayed one, if it continues the cursor.

    `dispatch_log` maps ids to `"committed"` (the intent is durable, the outcome is not) or `"processed"`.
    An id that is `"processed"` passes; :func:`counterfoil.decisions.resume.classify_resume` is stricter and
    suppresses it.

    Raises `SSEResumptionInvariantError` when the first id is at or below the cursor (a forged cursor or a
    server bug: abort), when it is above cursor + 1 (the message names the missing range: replay it from a
    checkpoint or fail its requests), and when its effect may have happened and the handlers are not
    idempotent.
    """
    if replay_head_id <= last_event_id:
        raise SSEResumptionInvariantError(
            f"the first replayed id {replay_head_id} is not above the cursor {last_event_id}: a forged cursor"
            " or a server bug, abort the session"
        )
    if replay_head_id > last_event_id + 1:
        raise SSEResumptionInvariantError(
            f"events {last_event_id + 1} to {replay_head_id - 1} are missing: replay them from a checkpoint,"
            " or fail the requests that wait for them"
        )
    # Past these two the id is cursor + 1, so the source's fourth check can never fail and is not made.
    if dispatch_log.get(replay_head_id) == "committed" and not idempotent_handlers:
        raise SSEResumptionInvariantError(
            f"event {replay_head_id} was dispatched and has no recorded outcome: its effect may have"
            " happened, and the handlers are not idempotent"
        )
    return replay_head_id


def classify_reconnect(
    requested_last_event_id: int,
    requested_generation: str | None,
    first_event_id: int,
    first_event_generation: str | None,
    server_declares_replay_window: bool,
) -> Classification:
    """Return what the first event after a reconnect says: the token first, then the order, then the window.

    Warning: a token that is absent on either side is not compared.  Two servers without tokens whose
    numbers happen to line up are `"resumed"` as soon as one of them declares a window, which proves nothing
    about *this* cursor; :func:`counterfoil.decisions.resume.classify_resume` calls that unverifiable.
    """
    has_token = requested_generation is not None and first_event_generation is not None
    if has_token and requested_generation != first_event_generation:
        return "reoriginated"
    if first_event_id <= requested_last_event_id:
        return "reoriginated"
    if has_token or server_declares_replay_window:
        return "resumed"
    return "unverifiable"


class IntentLedger(Protocol):
    """A durable ledger for plain threads, as `ledger.blocking()` gives it."""

    def entry(self, scope: Scope, key: LedgerKey) -> Entry | None:
        """Give the row of one key."""
        ...

    def claim(self, intent: Intent) -> ClaimAnswer:
        """Write the intent if the key is free."""
        ...

    def settle(self, claimed: Claimed, settlement: Settlement) -> Settled:
        """Write the outcome."""
        ...


def apply_event(
    event: Mapping[str, Any],
    classification: Classification,
    idempotency_ledger: MutableSet[str] | IntentLedger,
    execute: Callable[[Mapping[str, Any]], object] | None = None,
) -> Literal["applied", "skipped"]:
    """Apply one event of a classified stream at most once, and say whether it was applied.

    An event whose `"idempotency_key"` is in the ledger is skipped under every classification.  Otherwise
    its key is recorded and `execute(event)` called; without `execute` the key is recorded and nothing is
    run.

    With a set, the key is taken out again if `execute` raises, so an effect made before the exception can
    happen twice.  With a durable ledger (`ledger.blocking()`) the key is an intent until `execute` has
    returned: `NotApplied` takes it out, any other exception leaves it indeterminate.

    Raises `StreamResumptionViolation` for a new event of an unverifiable stream, for an event of a
    re-originated stream that carries no key, and for a key whose intent is found without an outcome;
    `ValueError` for an unknown classification.
    """
    key = event.get("idempotency_key")
    if key is not None and _is_known(key, idempotency_ledger):
        return "skipped"
    match classification:
        case "unverifiable":
            raise StreamResumptionViolation(
                "the stream is unverifiable: confirm out of band before anything of it is applied"
            )
        case "reoriginated":
            if key is None:
                raise StreamResumptionViolation(
                    "an event of a re-originated stream without idempotency_key may have been applied before:"
                    " reconcile it against durable state"
                )
        case "resumed":
            pass
        case _:
            raise ValueError(
                f"a classification is resumed, reoriginated or unverifiable, not {classification!r}"
            )
    if key is None:
        _run(event, execute)
    elif isinstance(idempotency_ledger, MutableSet):
        _run_once(event, key, idempotency_ledger, execute)
    else:
        _run_once_durably(event, key, idempotency_ledger, execute)
    return "applied"


def _run(event: Mapping[str, Any], execute: Callable[[Mapping[str, Any]], object] | None) -> None:
    if execute is not None:
        execute(event)


def _run_once(
    event: Mapping[str, Any],
    key: str,
    ledger: MutableSet[str],
    execute: Callable[[Mapping[str, Any]], object] | None,
) -> None:
    ledger.add(key)
    try:
        _run(event, execute)
    except BaseException:
        ledger.discard(key)
        raise


_SCOPE = Scope()
_SERVER = "counterfoil.resumption"


def _is_known(key: str, ledger: MutableSet[str] | IntentLedger) -> bool:
    if isinstance(ledger, MutableSet):
        return key in ledger
    found = ledger.entry(_SCOPE, PayloadKey(server=_SERVER, key=key))
    if found is None or found.outcome is OutcomeToken.NOT_APPLIED:
        return False
    if found.outcome in (OutcomeToken.COMPLETED, OutcomeToken.FAILED):
        return True
    raise _doubt(found.state)


def _run_once_durably(
    event: Mapping[str, Any],
    key: str,
    ledger: IntentLedger,
    execute: Callable[[Mapping[str, Any]], object] | None,
) -> None:
    intent = Intent(
        scope=_SCOPE,
        key=PayloadKey(server=_SERVER, key=key),
        kind=RowKind.AT_MOST_ONCE,
        label="apply_event",
    )
    claimed = ledger.claim(intent)
    if not isinstance(claimed, Claimed):
        raise _doubt("taken by another run meanwhile")
    try:
        _run(event, execute)
    except NotApplied:
        ledger.settle(claimed, Settlement(outcome=OutcomeToken.NOT_APPLIED))
        raise
    except BaseException as error:
        evidence = f"execute raised {type(error).__name__}"
        ledger.settle(
            claimed, Settlement(outcome=OutcomeToken.INDETERMINATE, why="exception", evidence=evidence)
        )
        raise
    ledger.settle(claimed, Settlement(outcome=OutcomeToken.COMPLETED))


def _doubt(state: str) -> StreamResumptionViolation:
    return StreamResumptionViolation(
        f"the effect under this key may have happened, its row is {state}: find out, then resolve the entry"
    )
