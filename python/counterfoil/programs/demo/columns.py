"""Runs the same agents and the same cuts against one way to the server, and counts what came of each call."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec

from counterfoil.programs.demo.agent import Agent, CallRecord, OpenClient
from counterfoil.testing.cuts import Cut, draw_cut
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.link import Answered, CutMade, Link, open_link


class Plan(msgspec.Struct, frozen=True):
    """How much a column runs: sessions at a time, calls of each, and the calls' length."""

    seed: int = 1
    sessions: int = 3
    calls: int = 8
    steps: int = 6
    pause_ms: int = 25
    prefix: str = ""
    """What the names of the calls begin with, where columns share a server."""


class Column(msgspec.Struct, frozen=True):
    """What came of every call of a column, and how often its effect happened."""

    name: str
    records: tuple[CallRecord, ...]
    effects: dict[str, int]
    cuts: tuple[CutMade, ...]
    exchanges: tuple[Exchange, ...]
    answered: tuple[Answered, ...]
    seconds: float

    def count(self, ending: str) -> int:
        return sum(record.ending == ending for record in self.records)

    def count_effects(self, times: int) -> int:
        return sum(self.effects.get(record.label, 0) == times for record in self.records)

    @property
    def right_at_once(self) -> int:
        return sum(record.ending == "right" and len(record.tries) == 1 for record in self.records)

    @property
    def right_again(self) -> int:
        return self.count("right") - self.right_at_once

    @property
    def doubled_effects(self) -> int:
        return sum(self.effects.get(record.label, 0) > 1 for record in self.records)

    @property
    def broken_progress(self) -> int:
        """Calls that got an answer, and with it progress notes doubled, lost or out of order."""
        return sum(
            record.ending == "right" and not _is_whole(record.tries[-1].progress) for record in self.records
        )


def _is_whole(progress: tuple[int, ...]) -> bool:
    return progress == tuple(range(1, len(progress) + 1)) and len(progress) > 0


def count_lines(effects: Path) -> dict[str, int]:
    """How often each call is in the effects file."""
    return Counter(effects.read_text().split()) if effects.exists() else {}


class CutOnce:
    """A plan for the link: the first POST of each call is cut behind its first event, drawn by its label."""

    def __init__(self, seed: int, steps: int) -> None:
        self._seed = seed
        self._steps = steps
        self._seen: set[str] = set()

    def __call__(self, exchange: Exchange) -> Cut | None:
        label = label_of(exchange)
        if label is None or label in self._seen:
            return None
        self._seen.add(label)
        return draw_cut(random.Random(f"{self._seed}:{label}"), frames=1, deepest=self._steps - 2)


def label_of(exchange: Exchange) -> str | None:
    """The label of the order that a request places, if it places one."""
    if exchange.method != "POST" or b'"tools/call"' not in exchange.body:
        return None
    arguments = msgspec.json.decode(exchange.body).get("params", {}).get("arguments", {})
    call = arguments.get("call")
    return call if isinstance(call, str) else None


class CutEarly(CutOnce):
    """Likewise, and every other call before its first event, where no client has an id."""

    def __call__(self, exchange: Exchange) -> Cut | None:
        cut = super().__call__(exchange)
        if cut is None or len(self._seen) % 2:
            return cut
        return Cut("before-head", cut.how)


async def run_column(
    name: str,
    port: int,
    effects: Path,
    plan: Plan,
    tell: Callable[[CallRecord], None],
    *,
    cuts: CutOnce | None = None,
    opens: OpenClient | None = None,
    attempts: int = 2,
) -> Column:
    """Run the plan against the server on `port`, through a link that cuts every call once.

    `opens` opens the agents' clients, which make a call `attempts` times.
    """
    began = time.monotonic()
    records: list[CallRecord] = []
    cuts = cuts or CutOnce(plan.seed, plan.steps)

    async def run_agent(link: Link, session: int) -> None:
        labels = [f"{plan.prefix}s{session}-c{call}" for call in range(1, plan.calls + 1)]
        agent = Agent(f"{link.url}/mcp", attempts=attempts, opens=opens)
        await agent.place_orders(labels, note, steps=plan.steps, pause_ms=plan.pause_ms)

    def note(record: CallRecord) -> None:
        records.append(record)
        tell(record)

    async with open_link(port, plan=cuts) as link, anyio.create_task_group() as tasks:
        for session in range(1, plan.sessions + 1):
            tasks.start_soon(run_agent, link, session)
    return Column(
        name,
        tuple(sorted(records, key=lambda record: record.label)),
        count_lines(effects),
        tuple(link.cuts),
        tuple(link.exchanges),
        tuple(link.answered),
        time.monotonic() - began,
    )
