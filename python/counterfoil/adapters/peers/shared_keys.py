"""A key ring that the processes of one directory share: the first one draws it, the others read it."""

from __future__ import annotations

import os
from contextlib import suppress

from counterfoil.adapters.peers.directory import SocketDirectory
from counterfoil.native import KeyRing


def share_keys(directory: SocketDirectory) -> KeyRing:
    """Return the ring in `keys` of a directory; it is written whole or not at all, and never again.

    It stays when its processes end: their successors then know the IDs of the former ones for ours, and gone.
    """
    path = directory.path / "keys"
    if not path.exists():
        own = directory.path / f"keys.{os.getpid()}"
        file = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(file, "w", encoding="ascii") as writing:
                writing.write(KeyRing.random().to_text())
            with suppress(FileExistsError):  # another one was first
                os.link(own, path)
        finally:
            os.unlink(own)
    return KeyRing.from_file(path)
