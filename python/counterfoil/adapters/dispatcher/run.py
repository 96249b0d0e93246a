"""One event on its way through the dispatch machine, and what every way of running it needs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import anyio

from counterfoil.adapters.dispatcher.reports import DispatchReport, DispatchTicket, Reporter
from counterfoil.handlers import Delivery, Handler
from counterfoil.limits import Limits
from counterfoil.model.ledger_keys import PayloadKey, encode_key, idempotency_key_of
from counterfoil.model.ledger_rows import RowKind
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol.dispatch_machine import State, Step, advance
from counterfoil.protocol.ledger_steps import Intent, Settlement
from counterfoil.stores.ledger_interface import Ledger

#: How long a copy waits between looks at a run elsewhere.
_LOOK_S = 0.05


class Run:
    """One event on its way, and where its dispatch stands in the machine's table."""

    __slots__ = ("delivery", "handler", "has_outside_effect", "intent", "state", "ticket")

    def __init__(self, delivery: Delivery, handler: Handler, ticket: DispatchTicket) -> None:
        self.delivery = delivery
        self.handler = handler
        self.ticket = ticket
        self.intent = intent_of(delivery, handler)
        self.state = State.RECEIVED
        #: The handler has begun and can have done something that no rollback takes back.
        self.has_outside_effect = False

    @property
    def key(self) -> str:
        """Give the event's idempotency key as a sink sees it."""
        return _sink_key(self.intent)

    def step(self, *steps: Step) -> None:
        """Walk the table; a step that the state does not know is a bug, and raises."""
        for step in steps:
            self.state = advance(self.handler.kind, self.state, step)


class RunTools:
    """The ledger, the limits and the reporter that the runs of one dispatcher share."""

    def __init__(
        self,
        ledger: Ledger,
        limits: Limits,
        reporter: Reporter,
        *,
        jitter: Callable[[], float],
        reach: Callable[[str], None] | None,
    ) -> None:
        self.ledger = ledger
        self.limits = limits
        self.reporter = reporter
        self._jitter = jitter
        self._reach_hook = reach

    async def back_off(self, attempt: int) -> None:
        """Wait before the next attempt."""
        base_s = self.limits.attempt_backoff_ms / 1000
        await anyio.sleep(base_s * 2 ** (attempt - 1) * (0.5 + self._jitter() / 2))

    async def wait_for_other_run(self, run: Run) -> None:
        """Suppress a copy until the run elsewhere in this process has settled the event."""
        run.step(Step.FOUND_RUNNING)
        try:
            await anyio.sleep(_LOOK_S)
        except anyio.get_cancelled_exc_class():
            run.step(Step.CANCELLED)
            self.reporter.finish(run.ticket, _doubt_of_copy(run.delivery))
            raise
        run.step(Step.OTHER_RUN_ENDED)

    def reach(self, boundary: str) -> None:
        """A place where tests let a fault happen."""
        if self._reach_hook is not None:
            self._reach_hook(boundary)


def intent_of(delivery: Delivery, handler: Handler) -> Intent:
    """Give what the ledger is told of an event before it runs; raises what its `payload_key` raises."""
    named = _payload_key_of(delivery, handler)
    return Intent(
        scope=delivery.scope,
        key=delivery.place,
        kind=RowKind(handler.kind.value),
        label=delivery.name,
        fingerprint=hashlib.blake2b(delivery.data, digest_size=16).digest() if delivery.data else b"",
        payload_key=PayloadKey(server=delivery.place.server, key=named) if named is not None else None,
    )


def _payload_key_of(delivery: Delivery, handler: Handler) -> str | None:
    named = handler.payload_key(delivery) if handler.payload_key is not None else None
    if named is not None:
        if not isinstance(named, str):
            raise TypeError(
                f"payload_key of {handler.name} gives {type(named).__name__}: a str or None is a key"
            )
        named.encode()  # half a surrogate pair names nothing that could be stored
    return named


def _sink_key(intent: Intent) -> str:
    """Give the key that a sink sees: of the payload where it names the work, else of the event."""
    return idempotency_key_of(encode_key(intent.scope, intent.payload_key or intent.key))


def _doubt_of_copy(delivery: Delivery) -> DispatchReport:
    return DispatchReport(
        delivery=delivery,
        outcome=OutcomeToken.INDETERMINATE,
        why="cancelled",
        evidence="another run of this event was under way, and nobody waited for its end",
        ends_stream=True,
    )


def failure_of(error: BaseException) -> Settlement:
    """Give the outcome of an event whose every attempt raised."""
    return Settlement(
        outcome=OutcomeToken.FAILED,
        why="attempts",
        evidence=f"every attempt ended in {type(error).__name__}",
        parked=True,
    )
