"""Handlers are judged when they are registered, not in the middle of a stream."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from counterfoil.errors import HandlerExists, UnknownHandlerKind, UnsafeHandler
from counterfoil.handlers import Handlers
from counterfoil.stores.ledger_memory import MemoryLedger
from counterfoil.stores.ledger_sqlite import SqliteLedger


def plain(transaction: object, delivery: object) -> None: ...
async def asynchronous(transaction: object, delivery: object) -> None: ...
async def fetch(delivery: object) -> str:
    return ""


def prepared(transaction: object, delivery: object, found: str) -> None: ...
def keyed(delivery: object, *, idempotency_key: str) -> None: ...
async def keyed_async(delivery: object, *, idempotency_key: str) -> None: ...
def bare(delivery: object) -> None: ...
def lazily(transaction: object, delivery: object) -> Iterator[int]:
    yield 1


class Callable_:
    async def __call__(self, transaction: object, delivery: object) -> None: ...


@pytest.mark.parametrize("kind", ["exactly_once", "", "Transactional"])
def test_an_unknown_kind_is_refused_by_name(kind: str) -> None:
    with pytest.raises(UnknownHandlerKind, match="transactional, idempotent, at_most_once"):
        Handlers().on("n", kind=kind)


@pytest.mark.parametrize(
    "function", [asynchronous, Callable_(), functools.partial(asynchronous), lazily], ids=repr
)
def test_a_transactional_handler_that_would_not_run_to_its_end_is_refused(
    function: Callable[..., Any],
) -> None:
    with pytest.raises(UnsafeHandler):
        Handlers().on("n", kind="transactional")(function)


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        ("transactional", bare),
        ("transactional", prepared),
        ("idempotent", bare),
        ("idempotent", plain),
        ("at_most_once", plain),
    ],
)
def test_a_function_that_cannot_be_called_as_its_kind_is_refused(
    kind: str, function: Callable[..., Any]
) -> None:
    with pytest.raises(UnsafeHandler, match="cannot be called"):
        Handlers().on("n", kind=kind)(function)


def test_prepare_belongs_to_transactional_handlers() -> None:
    with pytest.raises(UnsafeHandler, match="prepare="):
        Handlers().on("n", kind="idempotent", prepare=fetch)(keyed)
    with pytest.raises(UnsafeHandler, match="not async"):
        Handlers().on("n", kind="transactional", prepare=lambda delivery: None)(prepared)  # type: ignore[arg-type,return-value]
    handlers = Handlers()
    assert handlers.on("n", kind="transactional", prepare=fetch)(prepared) is prepared


def test_one_name_has_one_handler() -> None:
    handlers = Handlers()
    handlers.on("n", kind="at_most_once")(bare)
    with pytest.raises(HandlerExists):
        handlers.on("n", kind="at_most_once")(bare)
    assert repr(handlers) == "<Handlers ['n']>"


def test_a_handler_is_found_with_its_promise() -> None:
    handlers = Handlers()
    handlers.on("a", kind="idempotent")(keyed_async)
    handlers.on("b", kind="idempotent")(keyed)
    a, b = handlers.find("a"), handlers.find("b")
    assert a is not None
    assert b is not None
    assert (a.is_async, b.is_async, a.kind) == (True, False, "idempotent")
    assert handlers.find("c") is None


def test_a_kind_that_the_ledger_cannot_keep_starts_nothing(tmp_path: Path) -> None:
    """P8."""
    handlers = Handlers()
    handlers.on("n", kind="transactional")(plain)
    with pytest.raises(UnsafeHandler, match="n is transactional, which MemoryLedger cannot keep"):
        handlers.check(MemoryLedger())
    handlers.check(SqliteLedger(tmp_path / "l.db"))
