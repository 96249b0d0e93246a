"""The core without Python against the C splitter, both as programs that read the same files in turn."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from pathlib import Path
from typing import Any

from bars import ROOT, Bar, Context
from streams_for_benches import KINDS, stream_file, whole_events

#: Enough for events of a megabyte, little enough for short turns.
SLICE_BYTES = 1 << 20
#: Bytes per chunk: must and aim, as a share of the floor's speed.
SHARES = {1024: (0.4, 0.8), 16_384: (0.4, 0.8), 65_536: (0.4, 0.8), 1: (0.5, 1.0)}


def built_harness(context: Context) -> Path:
    """The release build of benches/rust; seconds when nothing changed."""
    target = context.build / "cargo"
    command = ["cargo", "build", "--release", "--quiet", "--locked", "-p", "counterfoil-bench"]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"CARGO_TARGET_DIR": str(target)}, check=True)
    return target / "release" / "counterfoil-bench"


def rows_of(command: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def splitter_rows(command: list[str]) -> dict[tuple[str, int], dict[str, Any]]:
    rows = [row for row in rows_of(command) if row["what"] == "splitter"]
    return {(row["file"], row["chunk"]): row for row in rows}


def slice_files(context: Context) -> list[str]:
    """The first few MiB of each stream: turns are short, so that a slow spell hits both sides."""
    folder = context.build / "bench-slices"
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind in KINDS:
        path = folder / f"{kind}.sse"
        path.write_bytes(whole_events(stream_file(context, kind), SLICE_BYTES))
        paths.append(str(path))
    return paths


def shares_of_floor(context: Context, harness: Path, floor: Path) -> dict[tuple[str, int], list[float]]:
    """Our speed over the floor's for each file and chunk size, once per turn."""
    files = slice_files(context)
    shares: dict[tuple[str, int], list[float]] = {}
    for _ in range(2 if context.quick else 4):
        theirs = splitter_rows([str(floor), *files])
        for key, row in splitter_rows([str(harness), "splitter", *files]).items():
            peer = theirs[key]
            if (row["events"], row["data_bytes"]) != (peer["events"], peer["data_bytes"]):
                raise SystemExit(f"the splitters disagree on {key}: {row} and {peer}")
            shares.setdefault(key, []).append(row["spans_mb_s"] / peer["spans_mb_s"])
    return shares


def floor_bars(context: Context, harness: Path) -> list[Bar]:
    floor = context.compiled("limit.c")
    shares = shares_of_floor(context, harness, floor) if floor is not None else {}
    bars = []
    for kind in KINDS:
        for chunk, (must, aim) in SHARES.items():
            found = shares.get((f"{kind}.sse", chunk))
            measured = statistics.median(found) if found else None
            size = "1 B" if chunk == 1 else f"{chunk // 1024} KiB"
            note = "" if found else "needs FLOORS=DIR"
            bars.append(Bar(f"splitter, {kind}, {size}, of the C floor", measured, must, aim, "x", note=note))
    return bars


def long_line_bars(harness: Path) -> list[Bar]:
    """Sixteen times the line must not cost more than sixteen times (and a little) as much.

    In larger chunks the caches decide, so the growth is divided by that of a plain copy of the same chunks.
    """
    rows = {
        (row["chunk"], row["mebibytes"]): row
        for row in rows_of([str(harness), "long-line"])
        if row["what"] == "long-line"
    }

    def growth(chunk: int, figure: str) -> float:
        return float(rows[chunk, 16][figure] / rows[chunk, 1][figure])

    bars = [
        Bar(
            f"core, one line in {chunk} B chunks, t(16 MiB) / t(1 MiB)",
            growth(chunk, "seconds"),
            20,
            18,
            "x",
            better="lower",
        )
        for chunk in (1, 7)
    ]
    beyond = growth(1024, "seconds") / growth(1024, "copy_seconds")
    name = "core, one line in 1 KiB chunks, growth by a copy's"
    return [*bars, Bar(name, beyond, 1.25, 1.125, "x", better="lower")]


def bars(context: Context) -> list[Bar]:
    harness = built_harness(context)
    return floor_bars(context, harness) + long_line_bars(harness)
