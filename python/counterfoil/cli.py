"""The command `counterfoil`: finds the program, runs it, and turns errors into one line and an exit code.

It decides nothing itself.  Only the program that was named is imported.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from counterfoil.errors import CounterfoilError
from counterfoil.native import __version__

#: What each program is for, as `counterfoil --help` lists it; the module has the same name.
PROGRAMS = {
    "demo": "break connections to a real MCP server and count what is lost, with and without the gateway",
    "gateway": "serve MCP behind a gateway that makes streams resumable",
    "keys": "make, rotate and list the keys that sign event IDs",
    "ledger": "say what became of calls and events, and settle what only a person can know",
    "tail": "show the events of a live MCP session, with the verdict on every connection",
}

OK = 0
USAGE = 2
INTERRUPTED = 130

_EXIT_CODES = (
    """exit codes: 0 ok, 1 a promise was broken, 2 usage or configuration, 3 unsafe store, 130 interrupted"""
)


class Program(Protocol):
    """What a module in `counterfoil.programs` offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the program's own arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Run and return the exit code."""


def load_program(name: str) -> Program:
    """Import one program."""
    return cast(Program, importlib.import_module(f"counterfoil.programs.{name}"))


def build_parser(named: str | None) -> argparse.ArgumentParser:
    """Declare all programs, with arguments for the one that was named."""
    parser = argparse.ArgumentParser(
        prog="counterfoil",
        description="MCP streams that resume on evidence, and effects that happen once.",
        epilog=_EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"counterfoil {__version__}")
    programs = parser.add_subparsers(dest="program", metavar="PROGRAM", required=True)
    for name, summary in PROGRAMS.items():
        own = programs.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if name == named:
            load_program(name).add_arguments(own)
    return parser


def actions_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every option and argument of a parser and of those below it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from actions_of(below)


def bind_dashed_values(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Write `--option -value` as `--option=-value`: how argparse takes a value that begins with a dash.

    Key ids and session ids are base64url: one in 64 begins so.
    """
    options = {option: action for action in actions_of(parser) for option in action.option_strings}
    bound: list[str] = []
    for word in words:
        before = options.get(bound[-1]) if bound else None
        takes_one = (
            isinstance(before, argparse._StoreAction | argparse._AppendAction) and before.nargs is None
        )
        if takes_one and word.startswith("-") and word != "--" and word not in options:
            bound[-1] += f"={word}"
        else:
            bound.append(word)
    return bound


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code.

    An error of ours or of the operating system becomes one line on stderr and exit code 2, unless the error
    has an `exit_code` of its own.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    named = next((word for word in words if not word.startswith("-")), None)
    parser = build_parser(named)
    arguments = parser.parse_args(bind_dashed_values(parser, words))
    try:
        code = load_program(arguments.program).run(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away; nothing more can be said to it, not even by the interpreter.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except (CounterfoilError, OSError) as error:
        line = " ".join(str(error).split())
        print(f"counterfoil {arguments.program}: {line}", file=sys.stderr)
        return int(getattr(error, "exit_code", USAGE))
