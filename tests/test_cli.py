"""The command: one line per error, the exit codes that are promised, and only the named program imported."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import counterfoil
import pytest
from counterfoil import CounterfoilError, cli


def run(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "counterfoil", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_the_version_is_the_package_s() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"counterfoil {counterfoil.__version__}\n")


def test_help_lists_every_program_and_the_exit_codes() -> None:
    done = run("--help")
    assert done.returncode == 0
    for word in (*cli.PROGRAMS, "exit codes"):
        assert word in done.stdout


@pytest.mark.parametrize("words", [(), ("nonsense",), ("keys",), ("keys", "new"), ("--nonsense",)])
def test_wrong_usage_is_exit_code_2_and_says_what_is_wrong(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert "usage: counterfoil" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_every_program_listed_has_the_two_functions() -> None:
    for name in cli.PROGRAMS:
        program = cli.load_program(name)
        assert callable(program.add_arguments)
        assert callable(program.run)


def test_only_the_named_program_is_imported() -> None:
    code = (
        "import sys, counterfoil.cli\n"
        "try: counterfoil.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith('counterfoil.programs.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    """Run a program that fails as told: there is no natural way to make a real one be interrupted on time."""

    def fail(_: object) -> int:
        raise error

    program = SimpleNamespace(add_arguments=lambda parser: None, run=fail)
    monkeypatch.setattr(cli, "PROGRAMS", {"broken": "fail"})
    monkeypatch.setattr(cli, "load_program", lambda name: program)
    return cli.main(["broken"])


def test_errors_are_one_line_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Unsafe(CounterfoilError):
        exit_code = 3

    for error, code in (
        (CounterfoilError("no\nway"), 2),
        (FileNotFoundError(2, "No such file", "x"), 2),
        (Unsafe("no way"), 3),
    ):
        assert raising(monkeypatch, error) == code
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("counterfoil broken: ")
        assert err.count("\n") == 1


def test_an_interruption_is_exit_code_130_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(monkeypatch, KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == ""


def test_a_bug_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        raising(monkeypatch, ZeroDivisionError())


def test_a_reader_that_goes_away_is_no_error(tmp_path: object) -> None:
    file = os.path.join(str(tmp_path), "keys")
    assert run("keys", "new", file).returncode == 0
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "counterfoil", "keys", "show", file],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("value", ["-_soLV", "--abcd", "-1", "plain"])
def test_a_value_may_begin_with_a_dash(value: str) -> None:
    parser = cli.build_parser("keys")
    words = ["keys", "rotate", "some.keys", "--drop", value, "--force", "--drop", value]
    arguments = parser.parse_args(cli.bind_dashed_values(parser, words))
    assert (arguments.drop, arguments.force) == ([value, value], True)


def test_an_option_is_never_taken_for_a_value() -> None:
    parser = cli.build_parser("keys")
    words = ["keys", "rotate", "--drop", "--force", "--", "some.keys"]
    assert cli.bind_dashed_values(parser, words) == words
