"""Plays the demo from beginning to end: columns, scenes, table, page, exit code."""

from __future__ import annotations

import logging
import secrets
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import anyio
import sniffio

from counterfoil.native import KeyRing
from counterfoil.programs.demo.agent import CallRecord
from counterfoil.programs.demo.columns import Column, Plan, run_column
from counterfoil.programs.demo.kills import Killed, KillPlan, run_kills
from counterfoil.programs.demo.naive import broken_by_naive, faults_missing, run_naive
from counterfoil.programs.demo.page import write_page
from counterfoil.programs.demo.processes import start_child
from counterfoil.programs.demo.scenes import (
    GATEWAY,
    SERVER,
    Scene,
    Stage,
    play_hop,
    play_hop_among_peers,
    play_lost_upstream,
    play_small_window,
    verdicts_of,
)
from counterfoil.programs.demo.table import lay_out, lay_out_killed, lay_out_naive
from counterfoil.programs.keys import SECRET_BYTES, write_key_file
from counterfoil.protocol.revisions import LAST_WITH_SESSIONS, WITHOUT_SESSIONS

_SCENES = (play_hop, play_hop_among_peers, play_lost_upstream, play_small_window)
_MARKS = {"right": ".", "other": "X", "error": "E", "hung": "H"}


async def show(seed: int, calls: int, page: Path) -> int:
    """Run everything; returns the exit code."""
    began = time.monotonic()
    logging.disable(logging.WARNING)  # what the SDK's clients say of each cut
    plan = Plan(seed=seed, calls=calls)
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder))
        ring = KeyRing.from_secret(secrets.token_bytes(SECRET_BYTES), made_s=int(time.time()))
        write_key_file(stage.keys, ring, replace=False)
        print(
            f"{plan.sessions} agents, {calls} calls each; each is cut once, behind its first id.\n"
            "A call that failed is made once more, in a new session.\n"
            ". right   X another call's answer   E error   H hung   † killed   ✓ through\n"
        )
        direct = await _run_direct("no store", "none", stage, plan)
        example = await _run_direct("example store", "example", stage, plan)
        ours, verdicts = await _run_ours(stage, plan)
        killed = await _run_killed(stage, seed)
        naive = await _run_naive(stage, seed)
        scenes = [await play(stage) for play in _SCENES]
    columns = [direct, example, ours]
    print(f"\n{lay_out(columns)}\n")
    print("verdicts of the gateway: " + _count_verdicts(verdicts) + "\n")
    print(f"{lay_out_killed(killed)}\n")
    print(f"{lay_out_naive(naive)}\n")
    for scene in scenes:
        print(f"{'kept  ' if scene.kept else 'BROKEN'}  {scene.name}:")
        print(f"        {scene.promise}\n        {scene.seen}")
    problems = [
        *_broken_promises(ours, verdicts, scenes),
        *(problem for one in killed for problem in _broken_by_kills(one)),
        *broken_by_naive(naive),
        *_missing_faults(direct, example),
        *faults_missing(naive),
    ]
    for problem in problems:
        print(f"\nFAILED: {problem}", file=sys.stderr)
    seconds = time.monotonic() - began
    file = anyio.Path(page)
    await file.parent.mkdir(parents=True, exist_ok=True)
    text = write_page(columns, scenes, problems, seconds=seconds, killed=killed, naive=naive)
    await file.write_text(text, encoding="utf-8")
    print(f"\n{seconds:.1f} s; the timelines are in {page}")
    return 1 if problems else 0


async def _run_direct(name: str, store: str, stage: Stage, plan: Plan) -> Column:
    effects = stage.folder / f"direct-{store}"
    async with start_child(SERVER, ["--effects", str(effects), "--store", store]) as server:
        return await _run_told(f"straight, {name}", server.port, effects, plan)


async def _run_ours(stage: Stage, plan: Plan) -> tuple[Column, tuple[dict[str, object], ...]]:
    effects = stage.folder / "ours"
    async with (
        start_child(SERVER, ["--effects", str(effects)]) as server,
        start_child(GATEWAY, stage.gateway(server.port)) as gateway,
    ):
        column = await _run_told("counterfoil gateway", gateway.port, effects, plan)
        return column, verdicts_of([gateway])


async def _run_killed(stage: Stage, seed: int) -> list[Killed]:
    """Run our own client on a revision with sessions and on one without, beside each other."""
    print(f"{'our client, killed':>24} ", end="", flush=True)
    began = time.monotonic()
    ended: list[Killed] = []
    plan = KillPlan(seed=seed, backend=sniffio.current_async_library())

    async def run(revision: str) -> None:
        effects = stage.folder / f"effects-{revision}"
        async with (
            start_child(SERVER, ["--effects", str(effects)]) as server,
            start_child(GATEWAY, stage.keyed_gateway(server.port, f"gateway-{revision}")) as gateway,
        ):
            folder = stage.folder / f"client-{revision}"
            ended.append(await run_kills(gateway.url, revision, effects, folder, plan, tell))

    def tell(mark: str) -> None:
        print(mark, end=" ", flush=True)

    async with anyio.create_task_group() as tasks:
        for known in (LAST_WITH_SESSIONS, WITHOUT_SESSIONS):
            tasks.start_soon(run, known.revision)
    print(f" {time.monotonic() - began:.1f} s")
    return sorted(ended, key=lambda one: one.revision)


async def _run_naive(stage: Stage, seed: int) -> list[Column]:
    print(f"{'naive agents':>24} ", end="", flush=True)
    began = time.monotonic()
    columns = await run_naive(stage, seed, lambda mark: print(mark, end=" ", flush=True))
    print(f" {time.monotonic() - began:.1f} s")
    return columns


async def _run_told(name: str, port: int, effects: Path, plan: Plan) -> Column:
    print(f"{name:>24} ", end="", flush=True)

    def tell(record: CallRecord) -> None:
        print("".join(_MARKS[attempt.ending] for attempt in record.tries), end=" ", flush=True)

    column = await run_column(name, port, effects, plan, tell)
    print(f" {column.seconds:.1f} s")
    return column


def _count_verdicts(verdicts: tuple[dict[str, object], ...]) -> str:
    counts = Counter(f"{line.get('verdict')} · {line.get('why')}" for line in verdicts)
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"


def _broken_promises(ours: Column, verdicts: tuple[dict[str, object], ...], scenes: list[Scene]) -> list[str]:
    calls, once = len(ours.records), ours.count_effects(1)
    checks = [
        (ours.right_at_once == calls, f"{calls - ours.right_at_once} calls did not end in their own result"),
        (
            once == calls,
            f"{calls - once} effects did not happen exactly once",
        ),
        (ours.broken_progress == 0, f"{ours.broken_progress} answers with progress doubled or lost"),
        (bool(verdicts), "no call was resumed, so nothing was shown"),
        (
            all(line.get("verdict") == "resumed" for line in verdicts),
            "a resume that could be honest was refused",
        ),
    ]
    broken = [text for holds, text in checks if not holds]
    return broken + [f"{scene.name}: {scene.promise}" for scene in scenes if not scene.kept]


def _broken_by_kills(killed: Killed) -> list[str]:
    calls, name = len(killed.calls), f"our client on {killed.revision}"
    broken = []
    if len(killed.answered) != calls or killed.doubtful_calls:
        broken.append(f"{name}: {calls - len(killed.answered)} calls did not end in their own result")
    if killed.count_effects(1) != calls:
        broken.append(f"{name}: {calls - killed.count_effects(1)} effects did not happen exactly once")
    broken += [
        f"{name}: {booked.wrong} receipts that are {booked.kind} were not booked as promised"
        for booked in killed.booked
        if booked.wrong
    ]
    return broken


def _missing_faults(direct: Column, example: Column) -> list[str]:
    missing = []
    if not direct.doubled_effects:
        missing.append("straight to a server without a store no effect was doubled: the cuts show nothing")
    if not example.count("other"):
        missing.append("with the example store no call got another's answer: the cuts show nothing")
    return missing
