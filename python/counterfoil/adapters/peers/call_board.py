"""Says which calls the processes of one host have: a file of counters that all of them map, one part each.

A call that is made again may reach another process before the news that its first caller has gone; here that
process sees at once who has one like it.  It costs a call two writes to memory, and no message.
"""

from __future__ import annotations

import mmap
import os

from counterfoil.adapters.peers.directory import SocketDirectory
from counterfoil.adapters.peers.owners import MAX_WORKERS, Owner, Place

#: Counters of one process; calls whose identities fall on one counter are taken for equal ones, and are not.
SLOTS = 1 << 15
_CELL_BYTES = 2
_MOST = (1 << 8 * _CELL_BYTES) - 1
#: Before the counters: the life of each place, plus one, and at 0 the highest place ever taken.
_LIVES = MAX_WORKERS + 1


class CallBoard:
    """The calls of this host by what equal ones have in common; `own` writes, and everybody reads.

    A part whose process died says what it said last, until the next life of its place.
    """

    def __init__(self, directory: SocketDirectory, own: Owner) -> None:
        self._own = own
        self._over: set[Owner] = set()
        size = (_LIVES + (MAX_WORKERS + 1) * SLOTS) * _CELL_BYTES
        file = os.open(directory.path / "calls", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(file).st_size < size:
                os.ftruncate(file, size)  # a hole: only what is written takes memory
            self._map = mmap.mmap(file, size)
        finally:
            os.close(file)
        self._cells = memoryview(self._map).cast("H")
        self._base = _base_of(own.place.worker)
        self._cells[own.place.worker] = 0
        self._cells[self._base : self._base + SLOTS] = memoryview(bytes(SLOTS * _CELL_BYTES)).cast("H")
        self._cells[own.place.worker] = own.incarnation + 1

    def note(self, identity: bytes, *, is_here: bool) -> None:
        """Note that this process has a call of that identity now, or has none any more."""
        cell = self._base + _slot_of(identity)
        count = self._cells[cell]
        if is_here and count < _MOST:
            self._cells[cell] = count + 1
        elif not is_here and 0 < count < _MOST:  # one that was full is full for this life
            self._cells[cell] = count - 1
        if self._cells[0] < self._own.place.worker:
            self._cells[0] = self._own.place.worker

    def find(self, identity: bytes) -> Owner | None:
        """Return another process that has, most likely, a call of that identity."""
        slot = _slot_of(identity)
        for worker in range(1, self._cells[0] + 1):
            if self._cells[_base_of(worker) + slot] and worker != self._own.place.worker:
                owner = self._owner_at(worker)
                if owner is not None and owner not in self._over:
                    return owner
        return None

    def pass_over(self, owner: Owner) -> None:
        """Ask a life that is over no more."""
        self._over.add(owner)

    def close(self) -> None:
        """Have no call any more."""
        self._cells[self._own.place.worker] = 0
        self._cells.release()
        self._map.close()

    def _owner_at(self, worker: int) -> Owner | None:
        life = self._cells[worker]
        return Owner(Place(self._own.place.replica, worker), life - 1) if life else None


def _base_of(worker: int) -> int:
    return _LIVES + worker * SLOTS


def _slot_of(identity: bytes) -> int:
    return int.from_bytes(identity[:4], "big") % SLOTS
