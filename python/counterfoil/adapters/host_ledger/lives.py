"""Which processes of a host live: each holds a kernel lock on a file of its own, which ends with it.

A row in the ledger names the life that carries it on, so nobody need guess by time whether that one is gone.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path

LIFE_BYTES = 8
_SUFFIX = ".life"
_REMEMBERED = 4_096


class Lives:
    """The lives of one directory, and this process's own from `begin` to `end`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._dead: set[bytes] = set()
        self._file: int | None = None
        #: The name of this life.
        self.own = b""

    def begin(self) -> None:
        """Begin this life; the file has its lock before it has its name, so nobody ever takes it for dead."""
        self.own = secrets.token_bytes(LIFE_BYTES)
        path = self._path(self.own)
        unnamed = path.with_suffix(".new")
        self._file = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(unnamed, path)

    def end(self) -> None:
        """End this life: what it carried on is anybody's to take over."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                os.unlink(self._path(self.own))
            os.close(file)

    def has(self, life: bytes) -> bool:
        """Say whether a life goes on; what is no life's name is nobody's."""
        if len(life) != LIFE_BYTES or life in self._dead:
            return False
        if life == self.own:
            return self._file is not None
        path = self._path(life)
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            self._note_dead(life)
            return False
        except OSError:
            return True  # not to be known: nothing is taken from a life that may go on
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        else:
            self._note_dead(life)
            with suppress(OSError):
                os.unlink(path)
            return False
        finally:
            os.close(file)

    def others(self) -> list[bytes]:
        """Give every life whose file is there, but this one; some may be over."""
        found: list[bytes] = []
        with suppress(OSError), os.scandir(self._directory) as entries:
            for entry in entries:
                name, dot, kind = entry.name.partition(".")
                if dot + kind == _SUFFIX and len(name) == 2 * LIFE_BYTES:
                    with suppress(ValueError):
                        found.append(bytes.fromhex(name))
        return [life for life in found if life != self.own]

    def _note_dead(self, life: bytes) -> None:
        if len(self._dead) >= _REMEMBERED:
            self._dead.clear()  # they are looked for again
        self._dead.add(life)

    def _path(self, life: bytes) -> Path:
        return self._directory / f"{life.hex()}{_SUFFIX}"
