"""Published clients behind the gateway: a call cut after its first ID ends in its result.

What became of the calls is written to `build/results/cut-calls.md`, by where they were cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from counterfoil.testing.link import open_link
from interop.environments import ALL_PAIRS, BUILD, PAIRS, on_pairs
from interop.gateways import Gateway
from interop.plans import (
    STEPS,
    CutAgain,
    CutTable,
    cut_after_answer,
    cut_after_primed_id,
    cut_before_id,
    cut_calls,
    cut_in_answer,
    plan_calls,
    resumptions,
)
from interop.processes import Orders
from interop.runs import Call, Run, run_client

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


COLUMNS = ("result", "our error", "its own error", "session lost", "hung", "effects 0", "effects 1", "more")


class Ends:
    """What became of the calls, by client and by where they were cut."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Counter[str]] = {}

    def note(self, client: str, where: str, run: Run, orders: Orders) -> None:
        counts = self._rows.setdefault((where, client), Counter())
        for call in run.calls.values():
            effects = orders.count_effects(call.key)
            counts[outcome_of(call)] += 1
            counts[f"effects {effects}" if effects < 2 else "more"] += 1
            counts["calls"] += 1

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"| Cut | Client | Calls | {' | '.join(COLUMNS)} |", "|---" * (3 + len(COLUMNS)) + "|"]
        for (where, client), counts in sorted(self._rows.items()):
            cells = " | ".join(str(counts[column]) for column in COLUMNS)
            lines.append(f"| {where} | {client} | {counts['calls']} | {cells} |")
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def outcome_of(call: Call) -> str:
    """Name the end of a call; an error that the client made up is never ours."""
    if call.outcome == "error":
        return "our error" if call.evidence is not None else "its own error"
    return call.outcome


@pytest.fixture(scope="module")
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.write(BUILD / "results" / "cut-calls.md")


def check_every_call(run: Run, orders: Orders, *, steps: int = STEPS) -> None:
    for call in run.calls.values():
        assert call.is_right, call
        assert call.has_all_progress(steps), call
        assert orders.count_effects(call.key) == 1, call
    assert not run.unexpected_answers()


@on_pairs(ALL_PAIRS)
async def test_a_call_cut_after_its_id_ends_in_its_result(
    client: str, name: str, orders: Orders, gateway: Gateway, scaled: Callable[[int, int], int], ends: Ends
) -> None:
    """Progress comes whole and once, the effect is applied once, nothing of another stream comes."""
    plan = plan_calls(name, scaled(20, 100), sessions=5, tools=("order", "ask"))
    table = CutTable.draw(plan.keys(), seed=3, draw=cut_after_primed_id)
    async with open_link(gateway.port, plan=table) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    ends.note(client, "after its id", run, orders)
    check_every_call(run, orders)
    assert set(cut_calls(link)) == set(plan.keys())
    # One GET a call, but for cuts that happened to fall behind the answer's last line.
    assert len(plan.keys()) * 3 // 4 <= len(resumptions(link)) <= len(plan.keys())


@on_pairs(PAIRS)
async def test_a_call_cut_after_its_answer_asks_for_nothing_more(
    client: str, name: str, orders: Orders, gateway: Gateway, scaled: Callable[[int, int], int], ends: Ends
) -> None:
    count = scaled(8, 25)
    plan = plan_calls(name, count, sessions=count)
    table = CutTable.draw(plan.keys(), seed=5, draw=cut_after_answer)
    async with open_link(gateway.port, plan=table) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    ends.note(client, "after its answer", run, orders)
    # A client's pool may send a call on a connection at the moment at which another one's cut breaks it: such
    # a call never gets to the link, and its end is the client's own.
    unsent = [call for call in run.calls.values() if call.outcome != "result"]
    for call in unsent:
        assert call.key not in cut_calls(link), call
        assert call.evidence is None, call
        assert orders.count_effects(call.key) == 0, call
    assert len(unsent) <= count // 4
    ended = {key: call for key, call in run.calls.items() if call.outcome == "result"}
    check_every_call(Run(calls=ended, notices=run.notices, strays=run.strays), orders)
    assert not resumptions(link)


@on_pairs(PAIRS)
async def test_a_call_cut_before_its_id_never_gets_a_wrong_answer_or_two_effects(
    client: str, name: str, orders: Orders, gateway: Gateway, scaled: Callable[[int, int], int], ends: Ends
) -> None:
    """What such a call ends in is the client's own outcome; an error of its own is never taken for ours."""
    count = scaled(8, 40)
    # A break before the head costs some clients their session, so each call has its own.
    plan = plan_calls(name, count, sessions=count, timeout_s=5)
    table = CutTable.draw(plan.keys(), seed=4, draw=cut_before_id)
    async with open_link(gateway.port, plan=table) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    ends.note(client, "before its id", run, orders)
    assert len(cut_calls(link)) == count
    for call in run.calls.values():
        assert call.is_right or call.outcome in ("error", "session lost"), call
        assert call.evidence is None, call
        assert orders.count_effects(call.key) <= 1, call
    assert not run.unexpected_answers()


@on_pairs(PAIRS)
async def test_a_slow_call_to_a_server_that_answers_with_json_is_resumable_too(
    client: str,
    name: str,
    anyio_backend: str,
    orders_for: Callable[..., Orders],
    gateways: Callable[..., Gateway],
    scaled: Callable[[int, int], int],
) -> None:
    orders = orders_for("--json")
    gateway = gateways(orders, anyio_backend, "--set", "gateway.prime_after_ms=30")
    plan = plan_calls(name, scaled(8, 25), sessions=4)
    table = CutTable.draw(plan.keys(), seed=8, draw=cut_in_answer)
    async with open_link(gateway.port, plan=table) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    assert set(cut_calls(link)) == set(plan.keys())
    for call in run.calls.values():
        assert call.is_right, call
        assert orders.count_effects(call.key) == 1, call
    assert not run.unexpected_answers()


@on_pairs([("typescript-1", "trio"), ("typescript-2", "asyncio")], clients=("typescript-1", "typescript-2"))
async def test_a_call_cut_five_times_ends_in_its_result(
    client: str, name: str, orders: Orders, gateway: Gateway
) -> None:
    """Python's own client gives up a call after two cuts, whatever the server does."""
    plan = plan_calls(name, 4, sessions=4, steps=12)
    async with open_link(gateway.port, plan=CutAgain(5)) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    check_every_call(run, orders, steps=12)
    assert len(link.cuts) == 5 * 4
