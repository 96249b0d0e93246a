#!/usr/bin/env python3
"""Draw docs/state-machines.md from the tables that the machines walk.

build/venv/bin/python docs/make_state_diagrams.py          write the page
build/venv/bin/python docs/make_state_diagrams.py --check  exit 1 if it is out of date
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from counterfoil.model.tokens import HandlerKind
from counterfoil.protocol import dispatch_machine
from counterfoil.protocol.client_stream import states

PAGE = Path(__file__).parent / "state-machines.md"
HEAD = """# State machines

Drawn by `docs/make_state_diagrams.py` from the tables that the code walks; do not edit.  A step that a
state does not list is refused with a typed error, and a test tries every one of them.
"""


def name_of(state: StrEnum) -> str:
    """A name that the drawing language takes."""
    return state.value.replace("-", "_")


def draw(table: Mapping[StrEnum, Mapping[StrEnum, StrEnum]], first: StrEnum) -> str:
    """One table as a diagram, one line per step."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {name_of(first)}"]
    for state, steps in table.items():
        if not steps:
            lines.append(f"    {name_of(state)} --> [*]")
        lines += [f"    {name_of(state)} --> {name_of(target)}: {step}" for step, target in steps.items()]
    return "\n".join([*lines, "```"])


def page() -> str:
    """The whole page."""
    parts = [
        HEAD,
        "## A client's stream\n",
        "`counterfoil.protocol.client_stream.states`.  Only a verdict leads to *flowing*, where events are"
        " dispatched.\n",
        draw(states.TABLE, states.State.UNOPENED),
    ]
    for kind in HandlerKind:
        parts += [
            f"\n## The dispatch of one event: {kind.value.replace('_', ' ')}\n",
            draw(dispatch_machine.TABLES[kind], dispatch_machine.State.RECEIVED),
        ]
    return "\n".join(parts) + "\n"


def main() -> int:
    """Write the page, or say whether it is up to date."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if the page is out of date"
    )
    drawn = page()
    if not parser.parse_args().check:
        PAGE.write_text(drawn)
        return 0
    if not PAGE.exists() or PAGE.read_text() != drawn:
        print(f"{PAGE.name} is out of date: run docs/make_state_diagrams.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
