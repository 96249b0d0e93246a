"""The interface is one that a network backend can keep: async throughout, scope first, batches."""

from __future__ import annotations

import inspect

from counterfoil.stores.interface import LogReader, ReplayLog
from counterfoil.stores.memory import MemoryReplayLog
from counterfoil.stores.replay.reader import Reader

CALLS = {name: call for name, call in vars(ReplayLog).items() if inspect.iscoroutinefunction(call)}


def test_every_call_is_async_and_names_its_scope_first() -> None:
    assert len(CALLS) >= 10
    for name, call in CALLS.items():
        parameters = list(inspect.signature(call).parameters)
        if name not in {"set_keys", "statistics"}:
            assert parameters[:2] == ["self", "scope"], name
            assert inspect.signature(call).parameters["scope"].default is inspect.Parameter.empty


def test_memory_and_reader_have_exactly_the_interface() -> None:
    for name, call in CALLS.items():
        ours, theirs = inspect.signature(getattr(MemoryReplayLog, name)), inspect.signature(call)
        assert str(ours.parameters) == str(theirs.parameters), name
    for name in vars(LogReader):
        if not name.startswith("_"):
            assert hasattr(Reader, name), name
