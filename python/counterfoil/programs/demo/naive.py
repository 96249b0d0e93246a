"""Runs naive agents against every way to one server: their calls are cut early, and made again up to twice.

On two revisions, straight, through the gateway with and without adoption, and held to the older one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

import anyio
import msgspec

from counterfoil.programs.demo.agent import CallRecord, open_named_client
from counterfoil.programs.demo.columns import Column, CutEarly, Plan, run_column
from counterfoil.programs.demo.processes import start_child
from counterfoil.programs.demo.scenes import GATEWAY, SERVER, Stage
from counterfoil.protocol.revisions import LAST_WITH_SESSIONS, WITHOUT_SESSIONS

_OLD, _NEW = LAST_WITH_SESSIONS.revision, WITHOUT_SESSIONS.revision


class Way(msgspec.Struct, frozen=True):
    """One column: what the client speaks, what is in between, and whether each effect is to happen once."""

    name: str
    negotiates: bool
    through: str
    is_once: bool


WAYS = (
    Way(f"{_OLD}, straight", False, "server", False),
    Way(f"{_OLD}, resumption alone", False, "resumption", False),
    Way(f"{_OLD}, adoption", False, "adoption", True),
    Way(f"{_NEW}, straight", True, "server", False),
    Way(f"{_NEW}, adoption", True, "adoption", False),
    Way(f"{_NEW}, max_revision", True, "max_revision", True),
)
_GATEWAYS = {
    "resumption": ("--set", "gateway.adopt_s=0"),
    "adoption": (),
    "max_revision": ("--max-revision", _OLD),
}
_ATTEMPTS = 3


async def run_naive(stage: Stage, seed: int, tell: Callable[[str], None]) -> list[Column]:
    """Run all columns beside each other, in front of one server; in the order of `WAYS`."""
    effects = stage.folder / "naive"
    columns: dict[str, Column] = {}
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(start_child(SERVER, ["--effects", str(effects)]))
        ports = {"server": server.port}
        for name, options in _GATEWAYS.items():
            arguments = [*stage.gateway_of_users(server.port), *options]
            ports[name] = (await stack.enter_async_context(start_child(GATEWAY, arguments))).port

        async def run(number: int, way: Way) -> None:
            # Slow enough that its answer comes a while after the cut.
            plan = Plan(seed=seed, sessions=2, calls=4, steps=6, pause_ms=90, prefix=f"w{number}-")
            columns[way.name] = await run_column(
                way.name,
                ports[way.through],
                effects,
                plan,
                told,
                cuts=CutEarly(plan.seed, plan.steps),
                opens=partial(open_named_client, negotiates=way.negotiates),
                attempts=_ATTEMPTS,
            )

        def told(record: CallRecord) -> None:
            tell("." if record.ending == "right" else "E")

        async with anyio.create_task_group() as tasks:
            for number, way in enumerate(WAYS):
                tasks.start_soon(run, number, way)
    return [columns[way.name] for way in WAYS]


def broken_by_naive(columns: list[Column]) -> list[str]:
    """Say where an effect that was to happen once did not."""
    broken = []
    for way, column in zip(WAYS, columns, strict=True):
        wrong = len(column.records) - column.count("right")
        if way.is_once and (column.count_effects(1) != len(column.records) or wrong):
            doubled = column.doubled_effects
            broken.append(
                f"naive agents on {way.name}: {doubled} effects doubled, {wrong} calls without answer"
            )
    return broken


def faults_missing(columns: list[Column]) -> list[str]:
    """Say where a fault that is to be seen was not: then the cuts show nothing."""
    return [
        f"naive agents on {way.name}: no effect was doubled, so the cuts show nothing"
        for way, column in zip(WAYS, columns, strict=True)
        if not way.is_once and not column.doubled_effects
    ]
