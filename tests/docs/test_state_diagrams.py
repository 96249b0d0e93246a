"""The drawn state machines are those that the code walks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "docs" / "make_state_diagrams.py"


def test_committed_page_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_step_of_every_table_is_drawn() -> None:
    from counterfoil.protocol import dispatch_machine
    from counterfoil.protocol.client_stream import states

    tables = [states.TABLE, *dispatch_machine.TABLES.values()]
    steps = sum(len(steps) for table in tables for steps in table.values())
    text = (ROOT / "docs" / "state-machines.md").read_text()
    assert sum(line.count(" --> ") for line in text.splitlines() if ": " in line) == steps
