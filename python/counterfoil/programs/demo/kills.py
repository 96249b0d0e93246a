"""The demo's column of our own client: killed with -9 and started again, and then everything is counted.

Effects are counted where they happen, at the server and at the client, and doubts where they are listed.
"""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.text import TextReceiveStream

from counterfoil.model.tokens import HandlerKind
from counterfoil.programs.demo.client import KINDS, kind_of
from counterfoil.programs.demo.columns import count_lines
from counterfoil.stores.ledger_sqlite.reading import LedgerReader

CLIENT = "counterfoil.programs.demo.client"
#: A life of the client that lasts longer than this hangs.
_LIFE_S = 30.0


class KillPlan(msgspec.Struct, frozen=True):
    """How much is done, and how often the client dies of it."""

    seed: int = 1
    calls: int = 15
    kills: int = 5
    steps: int = 4
    pause_ms: int = 20
    backend: str = "trio"


class Booked(msgspec.Struct, frozen=True):
    """The receipts of one kind: how often each was booked, and which are listed as doubtful."""

    kind: HandlerKind
    calls: tuple[str, ...]
    times: dict[str, int]
    listed: frozenset[str]

    def count(self, times: int) -> int:
        return sum(self.times.get(call, 0) == times for call in self.calls)

    @property
    def wrong(self) -> int:
        """Calls whose receipt was not booked as often as its kind promises."""
        if self.kind is not HandlerKind.AT_MOST_ONCE:
            return sum(self.times.get(call, 0) != 1 or call in self.listed for call in self.calls)
        return sum(
            self.times.get(call, 0) > 1 or (not self.times.get(call) and call not in self.listed)
            for call in self.calls
        )


class Killed(msgspec.Struct, frozen=True):
    """What became of the calls on one revision."""

    revision: str
    calls: tuple[str, ...]
    kills: int
    killed_at: tuple[str, ...]
    answered: frozenset[str]
    effects: dict[str, int]
    booked: tuple[Booked, ...]
    doubtful_calls: frozenset[str]
    seconds: float

    def count_effects(self, times: int) -> int:
        return sum(self.effects.get(call, 0) == times for call in self.calls)

    @property
    def doubled_effects(self) -> int:
        return sum(count > 1 for count in self.effects.values())


async def run_kills(
    url: str, revision: str, effects: Path, folder: Path, plan: KillPlan, tell: Callable[[str], None]
) -> Killed:
    """Run the client to its end through `plan.kills` deaths; `tell` gets a mark per life."""
    began = time.monotonic()
    draw = random.Random(f"{plan.seed}:{revision}")
    await anyio.Path(folder).mkdir(parents=True)
    command = [sys.executable, "-m", CLIENT, "--url", url, "--folder", str(folder)]
    command += ["--revision", revision, "--calls", str(plan.calls), "--steps", str(plan.steps)]
    command += ["--pause-ms", str(plan.pause_ms), "--backend", plan.backend]
    said: Counter[str] = Counter()
    killed_at: list[str] = []
    is_done = False
    while not is_done:
        # New words only, or a life might end before it has done anything.
        die_after = draw.randint(1, 3) if len(killed_at) < plan.kills else None
        last = await _live(command, said, die_after, draw.random() * plan.pause_ms * 2 / 1000)
        is_done = last == "done"
        if not is_done:
            killed_at.append(last)
        tell("✓" if is_done else "†")
    calls = tuple(f"c{number}" for number in range(plan.calls))
    listed = _listed(folder / "client.db")
    return Killed(
        revision=revision,
        calls=calls,
        kills=len(killed_at),
        killed_at=tuple(killed_at),
        answered=frozenset(call for call in calls if said[f"answered {call}"]),
        effects=count_lines(effects),
        booked=tuple(_count_booked(kind, folder, calls, listed) for kind in KINDS),
        doubtful_calls=frozenset(call for what, call in listed if what == "call"),
        seconds=time.monotonic() - began,
    )


async def _live(command: Sequence[str], said: Counter[str], die_after: int | None, later_s: float) -> str:
    """Run one life; kill it `later_s` behind its `die_after`-th new word, None lets it end.

    Returns its last word; raises RuntimeError where it neither dies nor ends.
    """
    process = await anyio.open_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    errors: list[bytes] = []
    last = ""
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_collect, process, errors)
            with anyio.fail_after(_LIFE_S):
                assert process.stdout is not None
                async with aclosing(_lines(process.stdout)) as lines:
                    async for line in lines:
                        said[line] += 1
                        last = line
                        if die_after is not None and said[line] == 1:
                            die_after -= 1
                        if die_after == 0:
                            await anyio.sleep(later_s)
                            break
                if die_after == 0:
                    process.kill()
                code = await process.wait()
    finally:
        await _end(process)
    if code != (-9 if die_after == 0 else 0):
        text = b"".join(errors).decode(errors="replace")
        raise RuntimeError(f"a client ended with {code} behind {last!r}: {text[-2000:]}")
    return last


async def _lines(stream: ByteReceiveStream) -> AsyncGenerator[str, None]:
    rest = ""
    async for piece in TextReceiveStream(stream):
        *lines, rest = (rest + piece).split("\n")
        for line in lines:
            yield line


async def _collect(process: Process, errors: list[bytes]) -> None:
    assert process.stderr is not None
    errors.extend([piece async for piece in process.stderr])


async def _end(process: Process) -> None:
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            process.kill()
        await process.aclose()


def _listed(database: Path) -> frozenset[tuple[str, str]]:
    """What the ledger lists as doubtful: (`call`, its key) and (`event`, the call that was booked)."""
    with LedgerReader(database) as reader:
        entries = list(reader.indeterminate())
    return frozenset(
        ("call", entry.idempotency_key) if entry.what == "call" else ("event", entry.stream or "")
        for entry in entries
    )


def _count_booked(
    kind: HandlerKind, folder: Path, calls: Sequence[str], listed: frozenset[tuple[str, str]]
) -> Booked:
    own = tuple(call for number, call in enumerate(calls) if kind_of(number) is kind)
    match kind:
        case HandlerKind.TRANSACTIONAL:
            times = _count_rows(folder / "client.db")
        case HandlerKind.IDEMPOTENT:
            times = dict(Counter(file.name.split("-")[1] for file in folder.glob("sink-*")))
        case _:
            times = count_lines(folder / "booked")
    doubtful = frozenset(call for what, call in listed if what == "event" and call in own)
    return Booked(kind, own, times, doubtful)


def _count_rows(database: Path) -> dict[str, int]:
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        return dict(connection.execute("select call, count(*) from booked group by call"))
    except sqlite3.OperationalError:
        return {}  # nothing was booked
    finally:
        connection.close()
