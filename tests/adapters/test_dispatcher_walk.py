"""The dispatcher takes no step that the drawn machine does not know."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from counterfoil import Limits, Scope
from counterfoil.adapters.dispatcher import Dispatcher
from counterfoil.handlers import Delivery, Handlers
from counterfoil.model.ledger_keys import EventPlace
from counterfoil.model.tokens import HandlerKind, OutcomeToken
from counterfoil.protocol.dispatch_machine import State, Step, advance
from counterfoil.stores.ledger_memory import MemoryLedger

pytestmark = pytest.mark.anyio
BEGUN = "begun"


def steps_of(reached: list[str]) -> list[Step]:
    """The machine's steps for the boundaries that the dispatcher passed, and the handler's own beginnings."""
    steps: list[Step] = []
    is_running = False
    for mark in reached:
        if is_running and mark in ("B3", "B6"):
            steps.append(Step.HANDLER_FAILED)
            is_running = False
        match mark:
            case "B2":
                steps.append(Step.CLAIM_SENT)
            case "B3" if Step.INTENT_DURABLE not in steps:
                steps.append(Step.INTENT_DURABLE)
            case "begun":
                steps.append(Step.HANDLER_BEGUN)
                is_running = True
            case "B5":
                steps.append(Step.HANDLER_RETURNED)
                is_running = False
            case "B7":
                steps.append(Step.OUTCOME_DURABLE)
            case _:
                pass
    return steps


def walk(kind: HandlerKind, reached: list[str]) -> State:
    state = State.RECEIVED
    for step in steps_of(reached):
        if step is Step.OUTCOME_DURABLE and state is State.CLAIMED:
            state = advance(kind, state, Step.ATTEMPTS_USED_UP)
        state = advance(kind, state, step)
    return state


@pytest.mark.parametrize("kind", [HandlerKind.IDEMPOTENT, HandlerKind.AT_MOST_ONCE])
@pytest.mark.parametrize("failures", [0, 1, 9])
async def test_every_walk_of_the_dispatcher_is_one_of_the_machine(kind: HandlerKind, failures: int) -> None:
    reached: list[str] = []
    left = failures
    handlers = Handlers()

    def body() -> None:
        nonlocal left
        reached.append(BEGUN)
        if left:
            left -= 1
            raise LookupError("not yet")

    register(handlers, kind, body)
    place = EventPlace(server="s", stream="st", epoch="e", position=1, event_id="e-1")
    delivery = Delivery(scope=Scope(principal="p"), place=place, name="n", params={}, data=b"x")
    limits = Limits(attempt_backoff_ms=1)
    async with (
        MemoryLedger(limits=limits) as ledger,
        Dispatcher(ledger, handlers, limits=limits, _reach=reached.append) as dispatcher,
    ):
        report = await dispatcher.dispatch(delivery)
    assert walk(kind, reached) is State.SETTLED
    expected = OutcomeToken.COMPLETED
    if failures:
        expected = OutcomeToken.INDETERMINATE if kind is HandlerKind.AT_MOST_ONCE else expected
    if failures > 1 and kind is HandlerKind.IDEMPOTENT:
        expected = OutcomeToken.FAILED
    assert report.outcome is expected


def register(handlers: Handlers, kind: HandlerKind, body: Callable[[], None]) -> None:
    if kind is HandlerKind.IDEMPOTENT:

        @handlers.on("n", kind="idempotent")
        async def idempotent(delivery: Delivery, *, idempotency_key: str) -> None:
            body()
    else:

        @handlers.on("n", kind="at_most_once")
        async def at_most_once(delivery: Delivery) -> None:
            body()


def test_a_handler_that_begins_before_its_intent_is_no_walk_of_the_machine() -> None:
    """The comparison can fail."""
    with pytest.raises(Exception, match="cannot have its handler begun"):
        walk(HandlerKind.IDEMPOTENT, ["B1", BEGUN, "B2", "B3", "B5", "B6", "B7"])
