"""What a bench reports, and how it measures: ratios within one run, peers taking turns.

`benches/run.py` calls `bars(context)` of each bench module.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Bar:
    """One figure with what it must reach.  `measured` is None when it could not be taken; `note` says why."""

    name: str
    measured: float | None
    must: float | None
    aim: float | None
    unit: str
    better: Literal["higher", "lower"] = "higher"
    note: str = ""

    def reaches(self, wanted: float | None) -> bool | None:
        """None when there is nothing to compare."""
        if wanted is None or self.measured is None:
            return None
        return self.measured >= wanted if self.better == "higher" else self.measured <= wanted

    @property
    def is_missed(self) -> bool:
        """A must that was measured and not reached."""
        return self.reaches(self.must) is False


@dataclass(frozen=True)
class Context:
    """What a bench may use.

    `floors` is a folder with the C floors (None: the bars that need them are left out); `corpus` holds
    `KIND.sse` files and is filled by the generator where one is missing; `quick` trades precision for time.
    """

    floors: Path | None
    quick: bool
    corpus: Path
    build: Path = ROOT / "build"

    @property
    def rounds(self) -> int:
        return 3 if self.quick else 7

    def compiled(self, source: str, *, shared: bool = False) -> Path | None:
        """Build one floor with the flags in its head; None without floors."""
        if self.floors is None:
            return None
        folder = self.build / "floors"
        folder.mkdir(parents=True, exist_ok=True)
        suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
        # The extension's module is called sse_floor, whatever its source is called.
        target = folder / (f"sse_floor{suffix}" if shared else Path(source).stem)
        path = self.floors / source
        if not target.exists() or target.stat().st_mtime < path.stat().st_mtime:
            flags = ["-O3", "-march=native"]
            if shared:
                flags += ["-shared", "-fPIC", f"-I{sysconfig.get_paths()['include']}"]
            subprocess.run([os.environ.get("CC", "gcc"), *flags, "-o", str(target), str(path)], check=True)
        return target


Times = dict[str, list[float]]


def take_turns(peers: dict[str, Callable[[], object]], rounds: int) -> Times:
    """Time every peer once per round, in an order that rotates, so that a slow spell hits all of them.

    CPU time, not the clock on the wall: nobody waits for anything here, and a busy machine disturbs it less.
    """
    times: Times = {name: [] for name in peers}
    order = list(peers)
    for _ in range(rounds):
        for name in order:
            gc.collect()
            start = time.process_time()
            peers[name]()
            times[name].append(time.process_time() - start)
        order = order[1:] + order[:1]
    return times


def times_as_fast(times: Times, ours: str, peer: str) -> float | None:
    """The median over the rounds of peer time / our time."""
    if ours not in times or peer not in times:
        return None
    return statistics.median(theirs / own for theirs, own in zip(times[peer], times[ours], strict=True))


def show(bars: Iterable[Bar]) -> int:
    """Print measured / must / aim, one line per bar; give back how many musts were missed."""
    missed = 0
    for bar in bars:
        sign = "≥" if bar.better == "higher" else "≤"
        wanted = [f"{sign} {value:g}" if value is not None else "-" for value in (bar.must, bar.aim)]
        reached = {True: "ok", False: "MISSED", None: "-"}[bar.reaches(bar.must)]
        if reached == "ok" and bar.reaches(bar.aim):
            reached = "aim"
        measured = "not measured" if bar.measured is None else f"{bar.measured:.3g} {bar.unit}"
        print(
            f"{bar.name:52} {measured:>14} {wanted[0]:>9} {wanted[1]:>9}  {reached:6} {bar.note}", flush=True
        )
        missed += bar.is_missed
    return missed


def run_alone(bars: Callable[[Context], Sequence[Bar]]) -> int:
    """The command line of one bench module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--floors", type=Path, help="folder with the C floors")
    parser.add_argument("--corpus", type=Path, default=ROOT / "build" / "bench-corpus")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    print(f"{'bar':52} {'measured':>14} {'must':>9} {'aim':>9}")
    return 1 if show(bars(Context(arguments.floors, arguments.quick, arguments.corpus))) else 0
