#!/usr/bin/env python3
"""Search the first seed that sees each planted bug, and write tests/simulation/pinned.toml and
pinned_ledger.toml.

build/venv/bin/python tests/simulation/pin_bugs.py [SEEDS]     10 000 seeds unless told otherwise; some
minutes
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from world.bugs import BUGS, planted  # noqa: E402
from world.ledger_bugs import LEDGER_BUGS  # noqa: E402
from world.ledger_schedule import LedgerSchedule  # noqa: E402
from world.schedule import Schedule, first_broken  # noqa: E402


def pin(bugs: Iterable[str], make: Callable[[int], Schedule], seeds: int, file: str) -> bool:
    """Write one file; False if a bug is not seen."""
    lines, is_complete = ["# The first seed that sees each planted bug; written by pin_bugs.py."], True
    for name in bugs:
        with planted(name):
            found = first_broken(range(seeds), make=make)
        print(f"{name:50} {found}", flush=True)
        is_complete = is_complete and found is not None
        if found is not None:
            lines.append(f'"{name}" = {found[0]}')
    (HERE / file).write_text("\n".join(lines) + "\n")
    return is_complete


def main() -> int:
    """Write both files; exit 1 if a bug is not seen."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    ledger = pin(LEDGER_BUGS, LedgerSchedule, seeds, "pinned_ledger.toml")
    return 0 if pin(BUGS, Schedule, seeds, "pinned.toml") and ledger else 1


if __name__ == "__main__":
    raise SystemExit(main())
