"""The crash matrix: for every boundary and fault the table names the only acceptable ends.

E: once.  R: at most once, and reported.  A fault that lasts meets the later boundaries too: each may end it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from counterfoil.model.tokens import HandlerKind
from counterfoil.protocol.dispatch_machine import State, rows_left_behind

HERE = Path(__file__).resolve().parent
BOUNDARIES = ("B0", "B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8", "B9")
#: The columns of the table, one letter per boundary; `?` is "E or R".
ONCE = dict(zip(BOUNDARIES, "EEEEEEEEEE", strict=True))
TABLE: dict[str, dict[str, dict[str, str]]] = {
    "transactional": {"kill": ONCE, "store": ONCE},
    "idempotent": {"kill": ONCE, "store": ONCE},
    "at_most_once": {
        "kill": dict(zip(BOUNDARIES, "EE?RRR?EEE", strict=True)),
        "store": dict(zip(BOUNDARIES, "??????????", strict=True)),
    },
}
#: Where the dispatch of the event stands at each boundary.
STATES = {
    "B0": State.RECEIVED,
    "B1": State.RECEIVED,
    "B2": State.CLAIMING,
    "B3": State.CLAIMED,
    "B4": State.RUNNING,
    "B5": State.RUNNING,
    "B6": State.SETTLING,
    "B7": State.SETTLED,
    "B8": State.SETTLED,
    "B9": State.ACKNOWLEDGED,
}
SMALL = ("kill", "split", "full", "failed-syncs")
ALL = (*SMALL, "busy", "io-error", "failed-sync")


def walk(folder: Path, shim: Path, backend: str, faults: tuple[str, ...]) -> list[dict[str, Any]]:
    environment = os.environ | {"LD_PRELOAD": str(shim), "SHIM_MATCH": "shop.db"}
    out = subprocess.run(
        [sys.executable, str(HERE / "crash_matrix.py"), str(folder), backend, *faults],
        capture_output=True,
        text=True,
        env=environment,
        timeout=900,
        check=False,
    )
    shutil.rmtree(folder, ignore_errors=True)
    assert out.returncode == 0, out.stderr[-2000:]
    return [json.loads(line) for line in out.stdout.splitlines()]


def code_of(cell: dict[str, Any], event: int) -> str:
    """Reduce what was found to the table's letter, or to what must not be."""
    count, doubted = cell["observed"][event - 1], event in cell["doubts"]
    if count > 1:
        return "doubled"
    if doubted:
        return "R"
    return "E" if count == 1 else "lost"


def judge(cell: dict[str, Any]) -> list[str]:
    """Name everything in a cell that the table does not allow."""
    column = "kill" if cell["fault"] in ("kill", "split") else "store"
    allowed = TABLE[cell["kind"]][column][cell["boundary"]]
    wrong = []
    if cell["recovered"] != 0:
        return ["the next process failed"]
    if code_of(cell, 2) not in ({"E", "R"} if allowed == "?" else {allowed}):
        wrong.append(f"event 2 ended as {code_of(cell, 2)}, not as {allowed}")
    if code_of(cell, 1) != "E":
        wrong.append(f"event 1 ended as {code_of(cell, 1)}")
    third = {"E"} if cell["kind"] != "at_most_once" or column == "kill" else {"E", "R"}
    if code_of(cell, 3) not in third:
        wrong.append(f"event 3 ended as {code_of(cell, 3)}")
    if cell["proofs"]:
        wrong.append("a proof of atomicity failed")
    if not cell["calm"]:
        wrong.append("a second recovery changed something")
    if cell["fault"] == "kill":
        rows = rows_left_behind(HandlerKind(cell["kind"]), STATES[cell["boundary"]])
        left = {row.value for row in rows}
        if cell["row"] not in left:
            wrong.append(f"the row left behind is {cell['row']}, and the machine says {sorted(left)}")
    return wrong


@pytest.mark.slow
def test_every_cell_ends_as_the_table_says(
    fast_folder: Path, shim: Path, scaled: Callable[[int, int], int]
) -> None:
    """Kill, split brain, a foreign lock, a full disk, failed writes and failed syncs, at every boundary."""
    backends = ("trio",) if scaled(0, 1) == 0 else ("trio", "asyncio")
    faults = SMALL if scaled(0, 1) == 0 else ALL
    cells = []
    for backend in backends:
        cells += walk(fast_folder, shim, backend, faults)
        fast_folder.mkdir(exist_ok=True)
    shutil.rmtree(fast_folder, ignore_errors=True)
    wrong = {
        f"{cell['kind']} {cell['boundary']} ({cell['at']}) {cell['fault']}": found
        for cell in cells
        if (found := judge(cell))
    }
    assert wrong == {}
    assert len(cells) == 40 * len(faults) * len(backends)
    # The faults really happened: killed processes, streams ended by the store, and doubts told.
    assert {cell["status"] for cell in cells if cell["fault"] == "kill"} == {9}
    assert sum("store" in (cell["ended"] or "") for cell in cells) > 20
    assert sum(2 in cell["doubts"] for cell in cells) > 10
