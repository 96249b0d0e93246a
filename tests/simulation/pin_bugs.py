#!/usr/bin/env python3
"""Search the first seed that sees each planted bug, and write tests/simulation/pinned.toml.

build/venv/bin/python tests/simulation/pin_bugs.py [SEEDS]     10 000 seeds unless told otherwise; about a
minute
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from world.bugs import BUGS, planted  # noqa: E402
from world.schedule import first_broken  # noqa: E402


def main() -> int:
    """Write the file; exit 1 if a bug is not seen."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    lines, unseen = ["# The first seed that sees each planted bug; written by pin_bugs.py."], []
    for name in BUGS:
        with planted(name):
            found = first_broken(range(seeds))
        print(f"{name:45} {found}", flush=True)
        if found is None:
            unseen.append(name)
        else:
            lines.append(f'"{name}" = {found[0]}')
    (HERE / "pinned.toml").write_text("\n".join(lines) + "\n")
    return 1 if unseen else 0


if __name__ == "__main__":
    raise SystemExit(main())
