#!/usr/bin/env python3
"""Measure every bar and say whether it holds.

    make bench                 all bars that need no C floor
    make bench FLOORS=DIR      also those against the C floors in DIR
    build/bench/bin/python benches/run.py --only sse,store --quick --json out.json

Exit code 1 when a must is missed.  Read benches/README.md before quoting a figure.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "python")]

from bars import ROOT, Bar, Context, show  # noqa: E402


def bench_modules(only: set[str]) -> list[tuple[str, ModuleType]]:
    names = sorted(path.stem.removeprefix("bench_") for path in (HERE / "python").glob("bench_*.py"))
    unknown = only - set(names)
    if unknown:
        raise SystemExit(f"no such bench: {', '.join(sorted(unknown))} (there are {', '.join(names)})")
    chosen = [name for name in names if not only or name in only]
    return [(name, importlib.import_module(f"bench_{name}")) for name in chosen]


def machine() -> str:
    facts = (
        platform.machine(),
        f"{os.cpu_count()} cores",
        f"Python {platform.python_version()}",
        platform.system(),
    )
    return ", ".join(facts)


def report(bars: list[Bar], out: Path | None) -> int:
    left_out = [bar for bar in bars if bar.must is not None and bar.measured is None]
    missed = [bar for bar in bars if bar.is_missed]
    if out is not None:
        out.write_text(json.dumps({"machine": machine(), "bars": [asdict(bar) for bar in bars]}, indent=1))
    for bar in left_out:
        print(f"left out: {bar.name}: {bar.note or 'needs FLOORS=DIR'}")
    print(f"{len(bars) - len(left_out)} bars measured, {len(missed)} musts missed, {len(left_out)} left out")
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--floors", type=Path, help="folder with the C floors; without it their bars are left out"
    )
    parser.add_argument("--corpus", type=Path, default=ROOT / "build" / "bench-corpus")
    parser.add_argument("--only", default="", help="benches to run, with commas between")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: for a look, not for a figure")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    arguments = parser.parse_args()
    if arguments.floors is not None and not arguments.floors.is_dir():
        parser.error(f"--floors: {arguments.floors} is no folder")
    context = Context(arguments.floors and arguments.floors.resolve(), arguments.quick, arguments.corpus)
    print(machine())
    print(f"{'bar':52} {'measured':>14} {'must':>9} {'aim':>9}")
    bars: list[Bar] = []
    for name, module in bench_modules(set(filter(None, arguments.only.split(",")))):
        began = time.monotonic()
        measured = list(module.bars(context))
        show(measured)
        bars += measured
        print(f"-- {name}: {time.monotonic() - began:.0f} s", flush=True)
    return report(bars, arguments.json)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
