"""A socket beside the database through which an operator asks its living owner to resolve an entry.

Only the owner writes its ledger, so the operator's command cannot (decision L26).  It is open to the user
that runs the owner and to root, takes one request of one line at a time, and can do nothing else.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from counterfoil.errors import CounterfoilError, LedgerError, LedgerFailed, LedgerInUse, StillPending
from counterfoil.model.ledger_verdicts import Entry

_SUFFIX = "-counterfoil-door"
#: A line of either side, and how long either waits for the other.
_LINE_MAX = 64 * 1024
_PEER_S = 5.0
_ANSWER_S = 15.0
_CREDENTIALS = struct.Struct("3i")
_log = logging.getLogger("counterfoil.ledger")


class ResolveRequest(msgspec.Struct, frozen=True, kw_only=True, tag="resolve", tag_field="do"):
    """Settle the entry that `name` names with what a person found out."""

    v: Literal[1] = 1
    name: str
    outcome: Literal["completed", "failed", "not_applied"]
    note: str


class _Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The entry as it is now, or why it is not."""

    v: Literal[1] = 1
    entry: Entry | None = None
    refused: str = ""
    is_ambiguous: bool = False


Resolve = Callable[[ResolveRequest], Entry]
_read_request = msgspec.json.Decoder(ResolveRequest).decode
_read_answer = msgspec.json.Decoder(_Answer).decode
_write = msgspec.json.Encoder().encode


def door_path(database: Path) -> Path:
    """Give the socket of a database; every name of the same file leads to the same one."""
    real = Path(os.path.realpath(database))
    return real.with_name(real.name + _SUFFIX)


class OwnerDoor:
    """Answers from :meth:`open` to :meth:`close`, on a thread of its own; the owner lock must be held."""

    def __init__(self, database: Path, resolve: Resolve) -> None:
        self._path = door_path(database)
        self._resolve = resolve
        self._stop: socket.socket | None = None
        self._identity: tuple[int, int] | None = None

    def open(self) -> None:
        """Begin to answer; where no socket can be had here the ledger works without, and the log says so."""
        listener = None
        try:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            # One that is there was left by an owner that was killed: the lock is ours.
            self._path.unlink(missing_ok=True)
            _bind_private(listener, self._path)
            listener.listen(4)
        except (OSError, AttributeError) as error:
            if listener is not None:
                listener.close()
            _log.warning("no socket beside the ledger, `ledger resolve` cannot reach this owner: %s", error)
            return
        self._identity = _identity_of(self._path)
        self._stop, stop = socket.socketpair()
        threading.Thread(
            target=self._answer_all, args=(listener, stop), name="counterfoil-ledger-door", daemon=True
        ).start()

    def close(self) -> None:
        """Answer nobody any more; the next owner makes a socket of its own."""
        if self._stop is None:
            return
        if _identity_of(self._path) == self._identity:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
        self._stop.close()
        self._stop = None

    def _answer_all(self, listener: socket.socket, stop: socket.socket) -> None:
        # Not `select`, which knows no descriptor from 1 024 on: a busy gateway has thousands open.
        with listener, stop, selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(stop, selectors.EVENT_READ)
            while True:
                if any(key.fileobj is stop for key, _ in selector.select()):
                    return
                with contextlib.suppress(OSError):
                    peer, _ = listener.accept()
                    with peer:
                        self._answer(peer)

    def _answer(self, peer: socket.socket) -> None:
        peer.settimeout(_PEER_S)
        if not _is_trusted(peer):
            return
        try:
            answer = _Answer(entry=self._resolve(_read_request(_read_line(peer))))
        except StillPending:
            refused = (
                "the ledger is held up, and may write it yet: look with `ledger show` before you ask again"
            )
            answer = _Answer(refused=refused, is_ambiguous=True)
        except CounterfoilError as error:
            is_ambiguous = isinstance(error, LedgerFailed) and error.ambiguous
            answer = _Answer(refused=str(error), is_ambiguous=is_ambiguous)
        except msgspec.MsgspecError:
            answer = _Answer(refused="this owner does not know such a request: is it of another release?")
        peer.sendall(_write(answer) + b"\n")


def ask_owner(database: Path, request: ResolveRequest) -> Entry:
    """Have the living owner resolve an entry, and give the entry as it is then; blocks for some seconds.

    Raises LedgerInUse where no owner listens, LedgerError for what the owner refuses, and LedgerFailed,
    ambiguous, where it does not answer in time.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_ANSWER_S)
        try:
            _at_short_name(door_path(database), asking.connect)
        except OSError as error:
            raise LedgerInUse(
                "a process owns the database and does not listen beside it: stop it first, "
                "or let it call ledger.resolve() itself"
            ) from error
        try:
            asking.sendall(_write(request) + b"\n")
            answer = _read_answer(_read_line(asking))
        except (OSError, msgspec.MsgspecError) as error:
            raise LedgerFailed(
                "the owner did not answer: look with `ledger show` before you ask again", ambiguous=True
            ) from error
    if answer.entry is not None:
        return answer.entry
    refused = answer.refused or "the owner refused"
    raise LedgerFailed(refused, ambiguous=True) if answer.is_ambiguous else LedgerError(refused)


def _bind_private(listener: socket.socket, path: Path) -> None:
    """Bind so that nobody else can connect: from the first moment on where the system allows that."""
    with contextlib.suppress(OSError):
        os.fchmod(listener.fileno(), 0o600)
    _at_short_name(path, listener.bind)
    path.chmod(0o600)


def _identity_of(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _at_short_name(path: Path, use: Callable[[str], object]) -> None:
    """Use a socket's name that may be longer than the hundred bytes which a socket's name has room for."""
    if len(os.fsencode(path)) < 100:
        use(str(path))
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        use(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def _is_trusted(peer: socket.socket) -> bool:
    """Say whether the other side is our own user or root; where the system cannot tell, the mode has."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    _, user, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return user in (0, os.geteuid())


def _read_line(peer: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        piece = peer.recv(_LINE_MAX)
        if not piece or len(line) + len(piece) > _LINE_MAX:
            raise ConnectionError("no whole line came")
        line += piece
    return line
