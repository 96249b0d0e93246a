"""Published clients against published servers with one line added, and beside them what the servers have.

The line is `resumable_app`, or our event store.  What is measured goes into `build/results/one-line.md`, the
table that the documentation quotes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from counterfoil.testing.link import open_link
from interop.environments import BUILD, CLIENTS
from interop.plans import STEPS, CutTable, cut_after_id, cut_after_primed_id, plan_calls
from interop.processes import KITS, start_kit
from interop.runs import Call, Run, run_client

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

#: Every server with another client each; in full every server with every client.
PAIRS = [(kit, client) for kit in KITS for client in CLIENTS]
IS_FULL = os.environ.get("COUNTERFOIL_FULL") == "1"
CHOSEN = PAIRS if IS_FULL else list(zip(KITS, CLIENTS, strict=True))
on_chosen = pytest.mark.parametrize(("kit", "client"), CHOSEN)
#: A call that is lost takes its client's whole patience, so of these one will do.
ONE_OF_SDK = [pair for pair in CHOSEN if pair[0].startswith("sdk")][: None if IS_FULL else 1]
ONE_OF_FASTMCP = [pair for pair in CHOSEN if pair[0].startswith("fastmcp")][: None if IS_FULL else 1]

COLUMNS = ("right", "right, notes missing", "another's answer", "typed error", "lost")


@pytest.fixture
def anyio_backend() -> str:
    """One backend here: what is ours runs in the child process, on the backend that the test names."""
    return "asyncio"


class Table:
    """What became of the calls, by server, by what stood behind it, and by client."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, str], Counter[str]] = {}

    def note(self, kit: str, behind: str, client: str, run: Run) -> Counter[str]:
        counts = Counter(outcome_of(call) for call in run.calls.values())
        self.rows[kit, behind, client] = counts
        return counts

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [
            f"| Server | With | Client | Calls | {' | '.join(COLUMNS)} |",
            "|---" * (4 + len(COLUMNS)) + "|",
        ]
        for (kit, behind, client), counts in sorted(self.rows.items()):
            cells = " | ".join(str(counts[column]) for column in COLUMNS)
            lines.append(f"| {kit} | {behind} | {client} | {counts.total()} | {cells} |")
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def outcome_of(call: Call) -> str:
    if call.is_right:
        return "right" if call.has_all_progress(STEPS) else "right, notes missing"
    if call.is_anothers:
        return "another's answer"
    return "typed error" if call.evidence is not None else "lost"


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    table = Table()
    yield table
    table.write(BUILD / "results" / "one-line.md")


class Cutting:
    """Cuts each call of a client once behind its first id, and tells what became of it."""

    def __init__(self, table: Table, folder: Path, count: int) -> None:
        self._table = table
        self._folder = folder
        self._count = count

    async def run(
        self, kit: str, behind: str, client: str, *, backend: str = "asyncio"
    ) -> tuple[Run, Counter[str]]:
        # A call that is lost hangs until its own deadline: the shorter, the sooner we know.  All are made at
        # once, as sessions that come one after the other have nothing to mix up.
        plan = plan_calls(
            f"{kit}-{behind}",
            self._count,
            sessions=5,
            at_once=self._count,
            timeout_s=5 if self._count <= 10 else 20,
        )
        draw = cut_after_id if behind == "nothing" else cut_after_primed_id
        cuts = CutTable.draw(plan.keys(), seed=11, draw=draw)
        with start_kit(kit, behind, self._folder / "effects", backend=backend) as server:
            async with open_link(server.server.port, plan=cuts) as link:
                run = await run_client(client, f"{link.url}/mcp", plan)
            for call in run.calls.values():
                assert server.count_effects(call.key) == 1, call
        assert set(cuts.made) == set(plan.keys())
        return run, self._table.note(kit, behind, client, run)


@pytest.fixture
def cutting(table: Table, tmp_path: Path, scaled: Callable[[int, int], int]) -> Cutting:
    return Cutting(table, tmp_path, scaled(10, 100))


@on_chosen
async def test_behind_the_front_every_cut_call_ends_in_its_result(
    kit: str, client: str, cutting: Cutting
) -> None:
    """Progress comes whole and once, the effect is applied once, nothing of another stream comes."""
    backend = "trio" if client == "python-2" else "asyncio"
    run, counts = await cutting.run(kit, "front", client, backend=backend)
    assert counts["right"] == counts.total(), counts
    assert not run.unexpected_answers()


@on_chosen
async def test_with_our_store_no_call_gets_anothers_answer_and_few_wait_in_the_sdks_hole(
    kit: str, client: str, cutting: Cutting
) -> None:
    """What the SDK loses between replay and live no store can bring back; all else comes."""
    run, counts = await cutting.run(kit, "our-store", client)
    assert counts["another's answer"] == 0, counts
    assert counts["right"] + counts["right, notes missing"] >= counts.total() * 0.8, counts
    assert not run.unexpected_answers()


@pytest.mark.parametrize(("kit", "client"), ONE_OF_SDK)
async def test_with_the_store_of_the_sdks_examples_calls_get_other_sessions_answers(
    kit: str, client: str, cutting: Cutting
) -> None:
    """The harness sees the leak that ours must not have."""
    _, counts = await cutting.run(kit, "stock-store", client)
    assert counts["another's answer"] > 0, counts


@pytest.mark.parametrize(("kit", "client"), ONE_OF_FASTMCP)
async def test_with_fastmcps_own_store_calls_are_kept_apart(kit: str, client: str, cutting: Cutting) -> None:
    _, counts = await cutting.run(kit, "stock-store", client)
    assert counts["another's answer"] == 0, counts
    assert counts["right"] > 0, counts


@pytest.mark.parametrize(("kit", "client"), [*ONE_OF_SDK, *ONE_OF_FASTMCP])
async def test_with_nothing_every_cut_call_is_lost(kit: str, client: str, cutting: Cutting) -> None:
    _, counts = await cutting.run(kit, "nothing", client)
    assert counts["lost"] == counts.total(), counts
