"""`counterfoil keys`: files whole and private or untouched, ids and dates printed, secrets never."""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from counterfoil import KeyRing, cli


def secrets_in(path: Path) -> list[str]:
    found = [line.split()[2] for line in path.read_text().splitlines() if line.startswith(("sign", "verify"))]
    assert found
    assert all(len(secret) == 43 for secret in found)
    return found


class Command:
    """Runs `counterfoil keys` and checks that no secret is ever printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str], path: Path) -> None:
        self.capsys = capsys
        self.path = path

    def __call__(self, action: str, *words: str, code: int = 0) -> str:
        assert cli.main(["keys", action, str(self.path), *words]) == code
        out, err = self.capsys.readouterr()
        if self.path.is_file():
            text = self.path.read_text()
            for secret in re.findall(r"[A-Za-z0-9_-]{43}", text):
                assert secret not in out + err
        assert (out == "") == (code != 0)
        return err if code else out

    def json(self, action: str, *words: str) -> list[dict[str, Any]]:
        listed = json.loads(self(action, "--json", *words))
        assert listed["file"] == str(self.path)
        return list(listed["keys"])


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    return Command(capsys, tmp_path / "counterfoil.keys")


def test_a_new_file_is_private_and_readable_by_the_library(command: Command) -> None:
    previous = os.umask(0)
    try:
        out = command("new")
    finally:
        os.umask(previous)
    assert stat.S_IMODE(command.path.stat().st_mode) == 0o600
    ring = KeyRing.from_file(command.path)
    assert f"sign    {ring.keys[0].id}  made " in out
    assert os.listdir(command.path.parent) == [command.path.name]


def test_two_files_have_two_keys(command: Command) -> None:
    command("new")
    first = secrets_in(command.path)
    command("new", "--force")
    assert secrets_in(command.path) != first
    assert stat.S_IMODE(command.path.stat().st_mode) == 0o600


def test_an_existing_file_is_not_replaced_without_force(command: Command) -> None:
    command.path.write_text("precious")
    assert "it exists" in command("new", code=2)
    assert command.path.read_text() == "precious"
    assert os.listdir(command.path.parent) == [command.path.name]


def test_a_rotation_keeps_the_old_keys_for_verifying(command: Command) -> None:
    old = command.json("new")[0]
    new, retired = command.json("rotate")
    assert new["role"] == "sign"
    assert (retired["role"], retired["id"]) == ("verify", old["id"])
    assert new["id"] != old["id"]
    assert retired["droppable"] > retired["retired"] >= old["made"]
    assert command.json("show") == [new, retired]
    assert [key.id for key in KeyRing.from_file(command.path).keys] == [new["id"], old["id"]]


def test_a_key_is_not_dropped_while_its_cursors_may_live(command: Command) -> None:
    old = command.json("new")[0]["id"]
    new = command.json("rotate")[0]["id"]
    before = command.path.read_bytes()
    assert "may still have live cursors until" in command("rotate", "--drop", old, code=2)
    assert "rotate first" in command("rotate", "--drop", new, code=2)
    assert "no key" in command("rotate", "--drop", "AAAAAA", code=2)
    assert command.path.read_bytes() == before
    assert [key["id"] for key in command.json("rotate", "--drop", old, "--keep-s", "0")] == [new]


def test_force_drops_a_key_before_its_time(command: Command) -> None:
    old = command.json("new")[0]["id"]
    command("rotate")
    assert old not in command("rotate", "--drop", old, "--force")


def test_a_file_that_others_may_read_is_refused_untouched(command: Command) -> None:
    command("new")
    command.path.chmod(0o644)
    before = command.path.read_bytes()
    assert "chmod 600" in command("rotate", code=2)
    assert command.path.read_bytes() == before


@pytest.mark.parametrize("action", ["rotate", "show"])
def test_a_missing_or_foreign_file_is_one_clear_line(command: Command, action: str) -> None:
    assert "No such file" in command(action, code=2)
    command.path.write_text("hello\n")
    command.path.chmod(0o600)
    assert "not a key file" in command(action, code=2)


def test_a_missing_folder_is_one_clear_line(command: Command) -> None:
    command.path = command.path.parent / "absent" / "keys"
    assert "No such file" in command("new", code=2)


def test_two_rotations_at_once_lose_no_key(command: Command) -> None:
    command("new")
    with command.path.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        before = command.path.read_bytes()
        assert "another rotation" in command("rotate", code=2)
        assert command.path.read_bytes() == before
    assert len(command.json("rotate")) == 2


def test_a_rotation_goes_through_a_link(command: Command) -> None:
    command("new")
    real = command.path.rename(command.path.with_name("real"))
    command.path.symlink_to(real)
    assert len(command.json("rotate")) == 2
    assert command.path.is_symlink()
    assert len(KeyRing.from_file(real).keys) == 2


def test_a_rotation_by_root_leaves_the_file_to_its_owner(command: Command) -> None:
    command("new")
    owner = 65534 if os.geteuid() == 0 else os.geteuid()
    os.chown(command.path, owner, -1)
    for action in (("rotate",), ("new", "--force")):
        command(*action)
        assert command.path.stat().st_uid == owner
        assert stat.S_IMODE(command.path.stat().st_mode) == 0o600


def test_a_write_that_fails_leaves_the_old_file(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    command("new")
    before = command.path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)  # a full disk cannot be caused here
    assert "No space left" in command("rotate", code=2)
    assert command.path.read_bytes() == before
    assert os.listdir(command.path.parent) == [command.path.name]


def test_seconds_are_not_negative(command: Command) -> None:
    with pytest.raises(SystemExit) as raised:
        command("show", "--keep-s", "-1")
    assert raised.value.code == 2
