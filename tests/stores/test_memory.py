"""The memory log never suspends, and is the store it was made of."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from counterfoil.stores.memory import MemoryReplayLog
from store_kit import KEYS, SCOPE, make_store, note


def finish(call: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that must not suspend."""
    try:
        call.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the call suspended")


def test_no_call_suspends_and_both_faces_see_one_store() -> None:
    store = make_store()
    log = MemoryReplayLog(store)
    finish(log.open_session(SCOPE))
    standalone = finish(log.open_standalone(SCOPE))
    call = finish(log.open_call(SCOPE, [1]))
    ids = finish(log.append(SCOPE, call, [note(1)]))
    assert store.resume(SCOPE, ids[0]).verdict == finish(log.resume(SCOPE, ids[0])).verdict
    finish(log.attach(SCOPE, call))
    finish(log.end_stream(SCOPE, call))
    finish(log.settle(SCOPE, call, b'{"jsonrpc":"2.0","id":1,"error":{}}'))
    finish(log.renew_epoch(SCOPE, standalone))
    finish(log.set_keys(KEYS))
    assert finish(log.statistics()) == store.statistics()
    finish(log.delete_session(SCOPE))
    assert store.statistics().ended_sessions == 1
