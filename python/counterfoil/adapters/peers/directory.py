"""The sockets of one host's processes: a file name says who listens there, so nobody need be asked who lives.

The kernel refuses connections to the socket of a process that died, at once and for ever.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from counterfoil.adapters.peers.owners import MAX_WORKERS
from counterfoil.errors import ConfigError

#: `<worker>-<incarnation>.sock`
_NAME = re.compile(r"(\d{1,3})-(\d{1,3})\.sock")
#: What the kernel takes as the path of a Unix socket, less the longest file name of ours.
_MAX_PATH = 107 - len("/255-255.sock")


class SocketDirectory:
    """A directory that only this user may enter; made if it is missing.  Raises `ConfigError`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if len(os.fsencode(self.path)) > _MAX_PATH:
            raise ConfigError("workers directory", f"longer than {_MAX_PATH} bytes, so no socket fits in it")
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = os.stat(self.path)
        except OSError as error:
            raise ConfigError("workers directory", f"{self.path}: {error.strerror}") from None
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise ConfigError(
                "workers directory", f"{self.path} must be this user's alone (chmod 700): it holds sockets"
            )

    def socket_of(self, worker: int, incarnation: int) -> str:
        """Return the path of one life's socket."""
        return str(self.path / f"{worker}-{incarnation}.sock")

    def lives(self) -> list[tuple[int, int]]:
        """Return worker and incarnation of every socket, those of the dead too, the youngest last."""
        found: list[tuple[float, tuple[int, int]]] = []
        with suppress(OSError), os.scandir(self.path) as entries:
            for entry in entries:
                match = _NAME.fullmatch(entry.name)
                if match is not None:
                    with suppress(FileNotFoundError):
                        life = (int(match[1]), int(match[2]))
                        found.append((entry.stat(follow_symlinks=False).st_mtime_ns, life))
        return [life for _, life in sorted(found)]

    def remove_others(self, worker: int, incarnation: int) -> None:
        """Remove the sockets of the earlier lives of a place that has just been taken."""
        for life in self.lives():
            if life[0] == worker and life[1] != incarnation:
                with suppress(FileNotFoundError):
                    os.unlink(self.socket_of(*life))

    @contextmanager
    def seat(self) -> Iterator[tuple[int, int]]:
        """Take the lowest free place for this process; yields worker and incarnation.

        The kernel frees it when the process ends, however it ends.  Raises `ConfigError` where none is free.
        """
        for worker in range(1, MAX_WORKERS + 1):
            file = os.open(self.path / f"{worker}.seat", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                continue
            try:
                yield worker, _next_life(file)
            finally:
                os.close(file)
            return
        raise ConfigError("workers directory", f"{MAX_WORKERS} processes use {self.path} already")


def _next_life(file: int) -> int:
    """Count the lives of a place in its file."""
    text = os.pread(file, 8, 0)
    last = int(text) if text.isdigit() else os.urandom(1)[0]
    incarnation = (last + 1) & 0xFF
    os.ftruncate(file, 0)
    os.pwrite(file, b"%d" % incarnation, 0)
    return incarnation
