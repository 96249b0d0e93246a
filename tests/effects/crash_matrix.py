"""Walk the crash matrix: one fault at one boundary of one event, then recovery, for each handler kind.

    LD_PRELOAD=disk_shim.so python crash_matrix.py FOLDER BACKEND FAULT...

Three events are delivered; the fault hits the second.  Prints one JSON object per cell.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
from counterfoil import SqliteLedger
from counterfoil.adapters.dispatcher import Dispatcher
from counterfoil.stores.ledger_sqlite.owner_lock import lock_path
from counterfoil.stores.ledger_sqlite.reading import LedgerReader
from shop import KINDS, LIMITS, Shop, delivery

#: (boundary, who reaches it, its name there, how often it was reached before), for intents of their own.
OUTSIDE = (
    ("B0", "test", "B0", 0),
    ("B1", "dispatch", "B1", 0),
    ("B2", "dispatch", "B2", 0),
    ("B2", "ledger", "B6", 0),
    ("B2", "ledger", "B7", 0),
    ("B3", "dispatch", "B3", 0),
    ("B4", "handler", "before-effect", 0),
    ("B4", "handler", "after-effect", 0),
    ("B5", "dispatch", "B5", 0),
    ("B6", "dispatch", "B6", 0),
    ("B6", "ledger", "B6", 1),
    ("B6", "ledger", "B7", 1),
    ("B7", "dispatch", "B7", 0),
    ("B8", "test", "B8", 0),
    ("B9", "test", "B9", 0),
)
#: For the kind whose effect, outcome and cursor are one commit.
ATOMIC = (
    ("B0", "test", "B0", 0),
    ("B1", "dispatch", "B1", 0),
    ("B3", "ledger", "B3", 0),
    ("B4", "handler", "before-effect", 0),
    ("B4", "handler", "after-effect", 0),
    ("B5", "ledger", "B5", 0),
    ("B6", "ledger", "B6", 0),
    ("B7", "ledger", "B7", 0),
    ("B8", "test", "B8", 0),
    ("B9", "test", "B9", 0),
)
DISK = {
    "full": ("w", 100_000, errno.ENOSPC),
    "io-error": ("w", 100_000, errno.EIO),
    "failed-sync": ("s", 1, errno.EIO),
    "failed-syncs": ("s", 100_000, errno.EIO),
}
SHIM = ctypes.CDLL(None)


class Trap:
    """Springs once, at the place it was set for."""

    def __init__(self, point: tuple[str, str, str, int], spring: Callable[[], None]) -> None:
        _, self._who, self._name, self._before = point
        self._spring = spring
        self.armed = False

    def reach(self, who: str, name: str) -> None:
        if not self.armed or (who, name) != (self._who, self._name):
            return
        if self._before:
            self._before -= 1
            return
        self.armed = False
        self._spring()


async def live(shop: Shop, trap: Trap) -> str:
    """Deliver events 1 to 3 and stop where the stream ends; gives how the second one ended."""
    ended = "nothing"
    handlers = shop.handlers(lambda name, delivery: trap.reach("handler", name))
    try:
        async with (
            SqliteLedger(shop.path, limits=LIMITS, _reach=lambda name: trap.reach("ledger", name)) as ledger,
            Dispatcher(
                ledger, handlers, limits=LIMITS, _reach=lambda name: trap.reach("dispatch", name)
            ) as dispatcher,
        ):
            await dispatcher.dispatch(delivery(1))
            trap.armed = True
            trap.reach("test", "B0")
            report = await dispatcher.dispatch(delivery(2))
            ended = f"{report.outcome.value} {report.why}".strip()
            trap.reach("test", "B8")
            if not report.ends_stream:
                await dispatcher.dispatch(delivery(3))
            trap.reach("test", "B9")
    finally:
        SHIM.shim_fail(ord("w"), 0, 0)
    return ended


async def recover(shop: Shop) -> dict[str, Any]:
    """The next incarnation, twice: what the first brings to its end, the second leaves alone."""
    await shop.run(("st",), 3)
    before = shop.raw_effects()
    found = await shop.run(("st",), 3)
    again = shop.raw_effects()
    return {
        "observed": [shop.observed_effects()["st", n] for n in (1, 2, 3)],
        "doubts": sorted(position for _, position in found["doubts"]),
        "proofs": found["proofs"],
        "calm": before == again,
    }


def forked(work: Callable[[], Any]) -> tuple[int, Any]:
    """Run in a process of its own; gives its exit status and what it said."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reading)
            os.write(writing, json.dumps(work()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    said = b""
    while piece := os.read(reading, 65536):
        said += piece
    os.close(reading)
    _, status = os.waitpid(child, 0)
    return status, json.loads(said) if said else None


def run_cell(
    folder: Path, kind: str, point: tuple[str, str, str, int], fault: str, backend: str
) -> dict[str, Any]:
    shop = Shop(folder, kind)
    ready_read, ready_write = os.pipe()
    go_read, go_write = os.pipe()

    def spring() -> None:
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "split":
            os.write(ready_write, b"!")
            os.read(go_read, 1)
        elif fault == "busy":
            hold_the_lock(shop.path)
        else:
            operation, times, error = DISK[fault]
            SHIM.shim_fail(ord(operation), times, error)

    def life() -> str:
        return anyio.run(live, shop, Trap(point, spring), backend=backend)

    if fault == "split":
        watcher = threading.Thread(target=take_over, args=(shop, backend, ready_read, go_write))
        watcher.start()
    status, ended = forked(life)
    os.close(ready_write)
    if fault == "split":
        watcher.join()
    for descriptor in (ready_read, go_read, go_write):
        os.close(descriptor)
    row = row_left_behind(shop.path)
    recovered_status, after = forked(lambda: anyio.run(recover, shop, backend=backend))
    return {"status": status, "ended": ended, "row": row, "recovered": recovered_status, **(after or {})}


def row_left_behind(path: Path) -> str:
    """Say what the next process finds of the second event."""
    with LedgerReader(path) as reader:
        if any(stream.mark.processed >= 2 for stream in reader.streams()):
            return "completed"
        states = [entry.state for entry in reader.entries() if entry.idempotency_key == "2"]
    return states[0] if states else "none"


def take_over(shop: Shop, backend: str, ready: int, go: int) -> None:
    """Split brain: somebody removes the lock by hand, and a second owner handles the event too."""
    if os.read(ready, 1):
        lock_path(shop.path).unlink(missing_ok=True)
        forked(lambda: anyio.run(lambda: shop.run(("st",), 3), backend=backend))
        os.write(go, b"!")


def hold_the_lock(path: Path) -> None:
    """Another connection writes for longer than the ledger waits, and then stops."""
    locked = threading.Event()

    def hold() -> None:
        shop = sqlite3.connect(path, isolation_level=None, timeout=5)
        shop.execute("begin immediate")
        locked.set()
        threading.Event().wait(LIMITS.ledger_busy_ms * 5 / 1000)
        shop.execute("rollback")
        shop.close()

    threading.Thread(target=hold, daemon=True).start()
    locked.wait(1)  # inside the ledger's own transaction nobody else can get the lock


def main() -> None:
    root, backend, faults = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    for kind in KINDS:
        for point in ATOMIC if kind == "transactional" else OUTSIDE:
            for fault in faults:
                folder = root / "cell"
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                found = run_cell(folder, kind, point, fault, backend)
                cell = {
                    "kind": kind,
                    "boundary": point[0],
                    "at": "/".join(map(str, point[1:])),
                    "fault": fault,
                }
                print(json.dumps(cell | found), flush=True)


if __name__ == "__main__":
    main()
