"""Bare-integer ids for peers' suites: they count every row, and lead back to the right place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from counterfoil.testing.plain_ids import PlainIdEventStore
from interop.local import Client, Gate, make_app, run_app, until

pytestmark = pytest.mark.anyio


async def test_ids_count_every_row_and_a_replay_gives_them_again() -> None:
    store, gate = PlainIdEventStore(), Gate()
    async with run_app(make_app("sdk", gate, event_store=store)) as upstream:
        client = Client(upstream)
        await client.initialize()
        async with client.post(client.call(1, "a")) as answer:
            first = await answer.take(3)
            await gate.of("a")[0].wait()
        gate.open_all()
        await until(lambda: len(store.rows) == 8)
        async with client.get(first[1].id) as answer:
            rest = await answer.until_answer()
        async with client.get("99") as answer:
            assert await answer.until_answer() == []
    # `initialize` has rows 1 and 2: its priming and its answer.
    assert [event.id for event in first] == ["3", "4", "5"]
    assert [event.id for event in rest] == ["5", "6", "7", "8"]
    assert said(rest) == ["a 2", "a 3", "a 4", None]
    assert [message is None for _, message in store.rows[:8]] == [True, False, True, *[False] * 5]


def said(events: list[Any]) -> list[str | None]:
    messages = [json.loads(event.data) for event in events]
    return [message["params"]["message"] if "params" in message else None for message in messages]
