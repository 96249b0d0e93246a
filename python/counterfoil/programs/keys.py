"""`counterfoil keys`: make, rotate and list the keys that sign event IDs.

It prints key ids and dates, never a secret.  Files are written whole, with mode 0600, or not at all.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from counterfoil.errors import KeyFileError
from counterfoil.native import KeyInfo, KeyRing

SECRET_BYTES = 32
#: How long a retired key should still verify: longer than any window and tombstone with default limits.
KEEP_S = 86_400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    new = actions.add_parser("new", help="write a new file with one random key")
    new.add_argument("--force", action="store_true", help="replace FILE; cursors that it signed are lost")
    rotate = actions.add_parser("rotate", help="add a new signing key; the old ones still verify")
    rotate.add_argument(
        "--drop",
        metavar="KEYID",
        action="append",
        default=[],
        help="remove a retired key instead of adding one (may be repeated)",
    )
    rotate.add_argument("--force", action="store_true", help="drop a key before its time")
    for action in (new, rotate, actions.add_parser("show", help="list the keys")):
        action.add_argument("file", metavar="FILE", type=Path)
        action.add_argument("--json", action="store_true", help="print one JSON object")
        action.add_argument(
            "--keep-s",
            type=_seconds,
            default=KEEP_S,
            metavar="SECONDS",
            help="how long a retired key must still verify: the longest replay window plus the age of "
            "tombstones (default: one day)",
        )


def run(arguments: argparse.Namespace) -> int:
    """Run one subcommand.

    Raises `KeyFileError` and `KeyRingError`; then the file is as it was.
    """
    path: Path = arguments.file
    now_s = int(time.time())
    if arguments.action == "new":
        ring = KeyRing.from_secret(secrets.token_bytes(SECRET_BYTES), made_s=now_s)
        write_key_file(path, ring, replace=arguments.force)
    elif arguments.action == "rotate":
        with _locked(path) as real:
            ring = KeyRing.from_file(real)
            if arguments.drop:
                ring = _drop(ring, arguments, now_s)
            else:
                ring = ring.rotated(secrets.token_bytes(SECRET_BYTES), now_s=now_s)
            write_key_file(real, ring, replace=True)
    else:
        ring = KeyRing.from_file(path)
    _print(path, ring, arguments)
    return 0


def write_key_file(path: Path, ring: KeyRing, *, replace: bool) -> None:
    """Write a key file whole, readable by its owner only, or leave what is there.

    A replaced file keeps its owner, so that a service can still read what root rotated.  Raises
    `KeyFileError` where the file exists and `replace` is false, otherwise `OSError`.
    """
    # mkstemp makes it with mode 0600; in the same folder, because a rename is atomic within a file system.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(ring.to_text())
            file.flush()
            os.fsync(file.fileno())
            if replace and path.exists():
                _keep_owner(file.fileno(), path)
        if replace:
            temporary.replace(path)
        else:
            # Unlike a rename, a link fails where the name is taken, without a moment in between.
            os.link(temporary, path)
    except FileExistsError:
        text = f"key file {path}: it exists; rotate it, or replace it with --force (its cursors are lost)"
        raise KeyFileError(text) from None
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    _sync_folder(path.parent)


def _keep_owner(descriptor: int, path: Path) -> None:
    there, ours = path.stat(), os.fstat(descriptor)
    if (there.st_uid, there.st_gid) != (ours.st_uid, ours.st_gid):
        os.chown(descriptor, there.st_uid, there.st_gid)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _locked(path: Path) -> Iterator[Path]:
    """Keep a second rotation out, or one of the two new keys would be lost; gives the file behind links."""
    try:
        real = path.resolve(strict=True)
        descriptor = os.open(real, os.O_RDONLY)
    except OSError as error:
        raise KeyFileError(f"key file {path}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_same = os.path.samestat(os.fstat(descriptor), real.stat())
        except BlockingIOError:
            is_same = False
        if not is_same:
            raise KeyFileError(f"key file {path}: another rotation is under way; try again when it is done")
        yield real
    finally:
        os.close(descriptor)


def _drop(ring: KeyRing, arguments: argparse.Namespace, now_s: int) -> KeyRing:
    for key_id in arguments.drop:
        for key in ring.keys:
            if key.id == key_id and not arguments.force and now_s < _droppable_s(key, arguments.keep_s):
                date = _date(_droppable_s(key, arguments.keep_s))
                text = f"key {key_id} may still have live cursors until {date}; drop it later or --force"
                raise KeyFileError(f"key file {arguments.file}: {text}")
        ring = ring.without(key_id)
    return ring


def _droppable_s(key: KeyInfo, keep_s: int) -> int:
    """When no cursor signed by this key can be answered any more; a signing key has no such time."""
    return 0 if key.retired_s is None else key.retired_s + keep_s


def _print(path: Path, ring: KeyRing, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(json.dumps({"file": str(path), "keys": [_as_json(key, arguments.keep_s) for key in ring.keys]}))
        return
    print(path)
    for key in ring.keys:
        line = f"  {'sign' if key.signs else 'verify':6}  {key.id}  made {_date(key.made_s)}"
        if key.retired_s is not None:
            droppable = _date(_droppable_s(key, arguments.keep_s))
            line += f"  retired {_date(key.retired_s)}  may be dropped from {droppable}"
        print(line)


def _as_json(key: KeyInfo, keep_s: int) -> dict[str, str | None]:
    retired = key.retired_s is not None
    return {
        "id": key.id,
        "role": "sign" if key.signs else "verify",
        "made": _date(key.made_s),
        "retired": _date(key.retired_s) if key.retired_s is not None else None,
        "droppable": _date(_droppable_s(key, keep_s)) if retired else None,
    }


def _date(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _seconds(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("not a number of seconds")
    return value
