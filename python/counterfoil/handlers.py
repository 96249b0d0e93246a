"""What an application registers: a function per event name, and what it promises about a second run.

A handler whose shape does not fit its promise is refused here, when it is registered, and not in the middle
of a stream.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from counterfoil.errors import HandlerExists, UnknownHandlerKind, UnsafeHandler
from counterfoil.model.ledger_keys import EventPlace
from counterfoil.model.tokens import HandlerKind
from counterfoil.native import Scope
from counterfoil.stores.ledger_interface import Ledger

Function = TypeVar("Function", bound=Callable[..., Any])


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One event as a handler gets it: what it says, whose it is, and where it stands.

    `data` is the event's exact text; `name` and `params` are the JSON-RPC method and parameters in it.
    """

    scope: Scope
    place: EventPlace
    name: str
    params: Any = None
    data: bytes = b""

    @property
    def event_id(self) -> str:
        """The event's id, as the server sent it."""
        return self.place.event_id


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """A registered function."""

    name: str
    kind: HandlerKind
    call: Callable[..., Any]
    is_async: bool
    prepare: Callable[[Delivery], Awaitable[Any]] | None = None
    payload_key: Callable[[Delivery], str | None] | None = None


class Handlers:
    """The handlers of an application, by event name."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def __repr__(self) -> str:
        return f"<Handlers {sorted(self._handlers)}>"

    def on(
        self,
        name: str,
        *,
        kind: str,
        prepare: Callable[[Delivery], Awaitable[Any]] | None = None,
        payload_key: Callable[[Delivery], str | None] | None = None,
    ) -> Callable[[Function], Function]:
        """Register the decorated function for events of `name`.

        `kind` is what it promises:

        - `"transactional"`: a plain function of `(transaction, delivery)`, all of whose work goes through
          `transaction`; exactly once.  Events that wait share a commit, in their order, and the function
          is called again where a commit is undone.  With `prepare`, an async function without effects that
          runs before, it gets that one's value as a third argument, and waits for the commit of the event
          before it.
        - `"idempotent"`: plain or async, of `(delivery, *, idempotency_key)`; it passes the key on to a sink
          that applies it once, so it may be run again.
        - `"at_most_once"`: plain or async, of `(delivery)`; never run twice, and a doubt is reported.

        `payload_key` finds the key that names the work in the event's own payload, where it has one; where
        it raises, or gives neither a str nor None, the event is not applied and its stream ends.

        Raises UnknownHandlerKind, HandlerExists, and UnsafeHandler where the function does not fit its kind.
        """
        try:
            promised = HandlerKind(kind)
        except ValueError:
            known = ", ".join(HandlerKind)
            raise UnknownHandlerKind(f"a handler kind is one of {known}, not {kind!r}") from None
        if name in self._handlers:
            raise HandlerExists(f"{name} has a handler already")

        def register(function: Function) -> Function:
            _check_shape(function, promised, prepare)
            self._handlers[name] = Handler(
                name=name,
                kind=promised,
                call=function,
                is_async=_is_async(function),
                prepare=prepare,
                payload_key=payload_key,
            )
            return function

        return register

    def find(self, name: str) -> Handler | None:
        """Give the handler of an event name."""
        return self._handlers.get(name)

    def check(self, ledger: Ledger) -> None:
        """Refuse a ledger on which a handler would not keep its promise; raises UnsafeHandler."""
        for handler in self._handlers.values():
            if handler.kind not in ledger.kinds:
                raise UnsafeHandler(
                    f"{handler.name} is {handler.kind}, which {type(ledger).__name__} cannot keep: "
                    f"it is safe for {', '.join(sorted(ledger.kinds))}"
                )


def _is_async(function: Callable[..., Any]) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is async counts too
    return any(
        check(one)
        for check in (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
        for one in (function, call)
    )


def _check_shape(
    function: Callable[..., Any], kind: HandlerKind, prepare: Callable[[Delivery], Awaitable[Any]] | None
) -> None:
    name = getattr(function, "__qualname__", repr(function))
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UnsafeHandler(f"{name} is a generator: calling it runs nothing")
    if kind is HandlerKind.TRANSACTIONAL and _is_async(function):
        raise UnsafeHandler(
            f"{name} is async and transactional: it would leave the transaction open while it waits. "
            "Make it a plain function, and fetch what it needs in prepare="
        )
    if prepare is not None and not _is_async(prepare):
        raise UnsafeHandler(
            f"{name} has a prepare= that is not async: do what needs no waiting in the handler"
        )
    prepared = prepare is not None
    if prepared and kind is not HandlerKind.TRANSACTIONAL:
        raise UnsafeHandler(f"{name} is {kind}: prepare= belongs to transactional handlers")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        match kind:
            case HandlerKind.TRANSACTIONAL:
                signature.bind(*([None] * (3 if prepared else 2)))
            case HandlerKind.IDEMPOTENT:
                signature.bind(None, idempotency_key="")
            case HandlerKind.AT_MOST_ONCE:
                signature.bind(None)
    except TypeError as error:
        raise UnsafeHandler(f"{name} cannot be called as {kind}: {error}") from None
