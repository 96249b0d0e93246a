"""One owner per database: a lock file beside it, which ends with the process whatever ends the process.

It keeps out other owners only; readers open the database itself.  POSIX record locks are used because a
forked child does not inherit them, and a table of this process because they do not exclude within one.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

from counterfoil.errors import LedgerInUse, LedgerReadOnly, UnsafeStore

_SUFFIX = "-counterfoil-owner"
_held: set[tuple[int, int]] = set()
_guard = threading.Lock()


def lock_path(database: Path) -> Path:
    """Give the lock file of a database; every name of the same file leads to the same lock."""
    real = Path(os.path.realpath(database))
    return real.with_name(real.name + _SUFFIX)


class OwnerLock:
    """Held from :meth:`acquire` to :meth:`release`, or to the end of the process."""

    def __init__(self, database: Path) -> None:
        self._path = lock_path(database)
        self._descriptor: int | None = None
        self._identity = (0, 0)
        self._pid = 0

    def acquire(self) -> None:
        """Take the lock; raises LedgerInUse at once if somebody has it, LedgerReadOnly if it cannot be
        made.
        """
        if fcntl is None:
            raise UnsafeStore("an owned ledger needs POSIX file locks, which this system has not")
        with _guard:
            # Closing any descriptor of the file would drop a record lock of this process: look before
            # opening.
            if _identity_of(self._path) in _held:
                raise LedgerInUse(
                    "this process owns the database already: share that ledger, or close it first"
                )
            try:
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise LedgerReadOnly(
                    f"cannot open the owner lock beside the database: {error.strerror}"
                ) from error
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
                os.close(descriptor)
                raise LedgerInUse(
                    f"process {holder} owns the database; `counterfoil ledger show` reads beside it, and "
                    "`ledger resolve` asks it"
                ) from None
            identity = _identity_of(self._path)
            _held.add(identity)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor, self._identity, self._pid = descriptor, identity, os.getpid()

    def release(self) -> None:
        """Let the next owner in; harmless when nothing is held, and in a forked child."""
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        with _guard:
            if self._pid == os.getpid():
                _held.discard(self._identity)
            os.close(descriptor)


def _identity_of(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return (status.st_dev, status.st_ino)


def is_owned(database: Path) -> bool:
    """Say whether a living process owns the database."""
    lock = OwnerLock(database)
    if not lock_path(database).exists():
        return False
    try:
        lock.acquire()
    except LedgerInUse:
        return True
    lock.release()
    return False
