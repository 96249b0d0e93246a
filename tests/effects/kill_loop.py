"""Kill a working process again and again, let the next one recover, and count what was lost or doubled.

    python kill_loop.py FOLDER MODE KILLS SEED

MODE is a handler kind, or one of the naive ways beside them.  Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import anyio
from counterfoil import Delivery
from shop import KINDS, Shop

STREAMS = ("one", "two", "three")
#: Events per stream that one process would handle if it were left alone.
AHEAD = 400


def work_with_ledger(folder: Path, kind: str, opened: Callable[[], None], last: int) -> None:
    """The real thing: dispatcher, ledger, handler."""
    begun: list[bool] = []

    def reach(name: str, delivery: Delivery) -> None:
        if not begun:
            begun.append(True)
            opened()
        spin()

    anyio.run(lambda: Shop(folder, kind).run(STREAMS, last, reach=reach), backend="trio")


def work_naively(folder: Path, mode: str, opened: Callable[[], None], last: int) -> None:
    """A cursor in a file, written before or after the effect."""
    shop = Shop(folder, "at_most_once")
    opened()
    for position in range(read_cursor(folder) + 1, last + 1):
        if mode == "cursor-before":
            write_cursor(folder, position)
        spin()
        shop.note(f"one {position} -")
        spin()
        if mode == "cursor-after":
            write_cursor(folder, position)


#: As long as a small handler takes, or hardly anything: then a stream's waiting events share their commits.
SPINS_S = (0.0002, 0.00001)
spin_s = SPINS_S[0]


def spin() -> None:
    """Take as long as a handler takes."""
    until = time.perf_counter() + spin_s
    while time.perf_counter() < until:
        pass


def read_cursor(folder: Path) -> int:
    file = folder / "cursor"
    return int(file.read_text()) if file.exists() else 0


def write_cursor(folder: Path, position: int) -> None:
    new = folder / "cursor.new"
    new.write_text(str(position))
    new.replace(folder / "cursor")


def work(folder: Path, mode: str, opened: Callable[[], None], last: int) -> None:
    if mode in KINDS:
        work_with_ledger(folder, mode, opened, last)
    elif mode == "no-intent-check":
        # An intent that is found is run again although the sink knows no keys.
        work_with_ledger(folder, "idempotent", opened, last)
    else:
        work_naively(folder, mode, opened, last)


def start(folder: Path, mode: str, last: int) -> tuple[int, int]:
    """Fork a worker; gives its process id and a pipe that is closed when its first handler has begun."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    code = 1
    try:
        os.close(reading)
        work(folder, mode, lambda: os.close(writing), last)
        code = 0
    finally:
        os._exit(code)


def finish(folder: Path, mode: str, last: int) -> None:
    child, reading = start(folder, mode, last)
    _, status = os.waitpid(child, 0)
    os.close(reading)
    if status != 0:
        raise SystemExit(f"the last worker ended with {status}")


def frontier(folder: Path, mode: str) -> int:
    shop = Shop(folder, mode if mode in KINDS else "at_most_once")
    effects = shop.raw_effects()
    return max((position for _, position in effects), default=0)


def main() -> None:
    folder, mode, kills, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    global spin_s
    chance = random.Random(seed)
    Shop(folder, mode if mode in KINDS else "at_most_once")
    last, early = AHEAD, 0
    for number in range(kills):
        spin_s = SPINS_S[number % 2] if mode in KINDS else SPINS_S[0]
        child, reading = start(folder, mode, last)
        if chance.random() < 0.1:
            early += 1  # in the middle of opening, recovering included
            time.sleep(chance.random() * 0.004)
        else:
            os.read(reading, 1)
            time.sleep(chance.random() * 0.008)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        last = max(last, frontier(folder, mode) + AHEAD)
    last = frontier(folder, mode) + 3
    finish(folder, mode, last)
    print(json.dumps(judge(folder, mode, last) | {"kills": kills, "early": early, "events": last}))


def judge(folder: Path, mode: str, last: int) -> dict[str, int]:
    """Count, for every event that was delivered, how often its effect happened."""
    if mode not in KINDS:
        streams: tuple[str, ...] = STREAMS if mode == "no-intent-check" else ("one",)
        effects = Shop(folder, "at_most_once").raw_effects()
        doubts: set[tuple[str, int]] = set()
        proofs = 0
    else:
        streams = STREAMS
        shop = Shop(folder, mode)
        ended = anyio.run(lambda: shop.run(STREAMS, last), backend="trio")
        doubts = {(stream, position) for stream, position in ended["doubts"]}
        proofs = len(ended["proofs"])
        effects = shop.observed_effects()
    counted: Counter[str] = Counter()
    for stream in streams:
        for position in range(1, last + 1):
            count = effects[stream, position]
            counted["lost"] += count == 0 and (stream, position) not in doubts
            counted["doubled"] += count > 1
            counted["reported"] += (stream, position) in doubts
            counted["reported_without_effect"] += count == 0 and (stream, position) in doubts
    names = ("lost", "doubled", "reported", "reported_without_effect")
    return {name: counted[name] for name in names} | {"broken_proofs": proofs}


if __name__ == "__main__":
    main()
