"""Record what a shop writes and syncs, and build the files as a power loss at any moment may leave them.

    LD_PRELOAD=disk_shim.so python power_loss.py record FOLDER SEED   run the shop, the shim's log in FOLDER
    LD_PRELOAD=disk_shim.so python power_loss.py sloppy FOLDER SEED   the same without syncing: must lose
    python power_loss.py images FOLDER COUNT SEED                     build crash images, open each

What was synced is there.  Of what was not, every write is kept, dropped or torn at a sector, every truncation
and every new name kept or dropped, independently.  `images` prints one JSON object.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import sqlite3
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import counterfoil.stores.ledger_sqlite.opening as opening
from counterfoil import Limits, SqliteLedger
from counterfoil.adapters.dispatcher import Dispatcher
from shop import SCOPE, Shop, delivery

SECTOR = 512
STREAMS = ("one", "two")
#: Event numbers of the second stream are told apart in acknowledgements by this.
SECOND = 1_000_000


class Operation:
    """One thing that happened to a file."""

    __slots__ = ("data", "kind", "name", "position")

    def __init__(self, kind: str, name: str, position: int, data: bytes) -> None:
        self.kind = kind
        self.name = name
        self.position = position
        self.data = data


def read_log(path: Path) -> Iterator[Operation]:
    log, at = path.read_bytes(), 0
    while at < len(log):
        kind, length = struct.unpack_from("=cH", log, at)
        at += 3
        name = log[at : at + length].decode()
        position, size = struct.unpack_from("=qI", log, at + length)
        at += length + 12
        yield Operation(kind.decode(), os.path.basename(name), position, log[at : at + size])
        at += size


async def record(folder: Path, seed: int) -> None:
    """Work in bursts with clean and unclean ends between them, and acknowledge each event to the shim."""
    chance = random.Random(seed)
    acknowledge = ctypes.CDLL(None).shim_acknowledge
    acknowledge.argtypes = [ctypes.c_int64]
    shop = Shop(folder, "transactional")
    done = 0
    limits = Limits(ledger_group=8)
    for _ in range(6):
        async with (
            SqliteLedger(shop.path, limits=limits) as ledger,
            Dispatcher(ledger, shop.handlers()) as one,
        ):
            for _ in range(chance.randrange(3, 9)):
                burst = chance.randrange(1, 7)
                tickets = []
                for position in range(done + 1, done + burst + 1):
                    tickets += [(position, one.dispatch(delivery(position, "one")))]
                    tickets += [(position + SECOND, one.dispatch(delivery(position, "two")))]
                for number, ticket in tickets:
                    await ticket
                    acknowledge(number)
                done += burst
            if chance.random() < 0.5:
                checkpoint(shop.path)


def stop_syncing() -> None:
    """Plant the fault that this program is there to find."""
    empty_log = opening.empty_log

    def sloppy(connection: sqlite3.Connection) -> None:
        empty_log(connection)
        connection.execute("pragma synchronous = off")

    opening.empty_log = sloppy


def checkpoint(path: Path) -> None:
    """Another connection brings the log into the database, in the middle of the work."""
    other = sqlite3.connect(path)
    other.execute("pragma wal_checkpoint(passive)")
    other.close()


class Disk:
    """What is on the platter for sure, and what may be."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.pending: dict[str, list[Operation]] = {}
        self.named: set[str] = set()
        self.new_names: set[str] = set()
        self.removed: set[str] = set()

    def apply(self, operation: Operation) -> None:
        name = operation.name
        match operation.kind:
            case "c":
                self.files.setdefault(name, bytearray())
                self.new_names.add(name)
                self.removed.discard(name)
            case "w" | "t":
                self.pending.setdefault(name, []).append(operation)
            case "s":
                for one in self.pending.pop(name, []):
                    change(self.files.setdefault(name, bytearray()), one)
            case "d":
                self.named |= self.new_names
                self.new_names.clear()
                for gone in self.removed:
                    self.files.pop(gone, None)
                    self.named.discard(gone)
                self.removed.clear()
            case "u":
                self.removed.add(name)

    def write_image(self, folder: Path, chance: random.Random) -> None:
        """Lose power now."""
        names = set(self.named)
        names |= {name for name in self.new_names if name.endswith(".db") or chance.random() < 0.7}
        names -= {name for name in self.removed if chance.random() < 0.5}
        for name in sorted(names):
            content = bytearray(self.files.get(name, b""))
            mood = chance.choice(("all", "none", "mixed", "prefix"))
            pending = self.pending.get(name, [])
            cut = chance.randrange(len(pending) + 1)
            for number, operation in enumerate(pending):
                if mood == "none" or (mood == "prefix" and number >= cut):
                    continue
                if mood == "mixed" and chance.random() < 0.4:
                    continue
                change(content, torn(operation, chance) if mood == "mixed" else operation)
            (folder / name).write_bytes(content)


def torn(operation: Operation, chance: random.Random) -> Operation:
    """Keep the sectors of a write that happened to reach the platter."""
    if operation.kind != "w" or len(operation.data) <= SECTOR or chance.random() < 0.5:
        return operation
    cut = chance.randrange(1, len(operation.data) // SECTOR + 1) * SECTOR
    if chance.random() < 0.5:
        return Operation("w", operation.name, operation.position, operation.data[:cut])
    return Operation("w", operation.name, operation.position + cut, operation.data[cut:])


def change(content: bytearray, operation: Operation) -> None:
    if operation.kind == "t":
        del content[operation.position :]
        content.extend(bytes(operation.position - len(content)))
        return
    end = operation.position + len(operation.data)
    content.extend(bytes(max(0, end - len(content))))
    content[operation.position : end] = operation.data


def images(folder: Path, count: int, seed: int) -> dict[str, Any]:
    """Open `count` images; gives what was wrong with any, and how much the powerless disk had lost."""
    chance = random.Random(seed)
    operations = list(read_log(folder / "log"))
    first = next(n for n, one in enumerate(operations) if one.kind == "a")
    moments = sorted(chance.randrange(first, len(operations) + 1) for _ in range(count))
    disk, done, acknowledged = Disk(), 0, dict.fromkeys(STREAMS, 0)
    wrong: list[str] = []
    lost_writes = 0
    for number, moment in enumerate(moments):
        while done < moment:
            operation = operations[done]
            if operation.kind == "a":
                stream = "two" if operation.position > SECOND else "one"
                acknowledged[stream] = max(acknowledged[stream], operation.position % SECOND)
            else:
                disk.apply(operation)
            done += 1
        image = folder / "image"
        shutil.rmtree(image, ignore_errors=True)
        image.mkdir()
        lost_writes += sum(len(pending) for pending in disk.pending.values())
        disk.write_image(image, chance)
        wrong += [
            f"image {number} at operation {moment}: {problem}" for problem in judge(image, acknowledged)
        ]
    shutil.rmtree(folder / "image", ignore_errors=True)
    syncs = sum(one.kind == "s" for one in operations)
    counts = {"operations": len(operations), "syncs": syncs, "unsynced": lost_writes, "images": count}
    return {"wrong": wrong, **counts}


def judge(image: Path, acknowledged: dict[str, int]) -> list[str]:
    """Open an image as the next process would, and compare it with what was promised."""
    wrong = []
    shop = Shop(image, "transactional")
    with SqliteLedger(shop.path).blocking() as ledger:
        marks = {name: ledger.mark(SCOPE, server="s", stream=name) for name in STREAMS}
    database = sqlite3.connect(shop.path)
    (sound,) = database.execute("pragma integrity_check").fetchone()
    if sound != "ok":
        wrong.append(f"torn: {sound}")
    for name in STREAMS:
        rows = database.execute("select position from effects where stream = ? order by position", (name,))
        effects = [position for (position,) in rows]
        mark = marks[name]
        processed = mark.processed if mark is not None else 0
        if effects != list(range(1, processed + 1)):
            wrong.append(f"stream {name}: processed to {processed}, effects {effects[-3:]}")
        if processed < acknowledged[name]:
            wrong.append(f"stream {name}: {acknowledged[name]} was acknowledged, {processed} is left")
    database.close()
    return wrong


def main() -> None:
    action, folder = sys.argv[1], Path(sys.argv[2])
    if action == "sloppy":
        stop_syncing()
    if action in ("record", "sloppy"):
        anyio.run(record, folder, int(sys.argv[3]), backend="trio")
    else:
        print(json.dumps(images(folder, int(sys.argv[3]), int(sys.argv[4]))))


if __name__ == "__main__":
    main()
