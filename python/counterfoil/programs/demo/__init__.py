"""`counterfoil demo`: the same agents and the same cuts against a server, with and without the gateway.

Prints as it goes, then a table, then writes one HTML page.  Exit code 1 if a promise broke, or if the columns
without the gateway show no fault.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="draws the cuts (default 1)")
    parser.add_argument(
        "--calls", type=int, default=16, metavar="N", help="calls of each of 3 sessions (default 16)"
    )
    parser.add_argument(
        "--backend", choices=("asyncio", "trio"), default="trio", help="runs clients and link"
    )
    parser.add_argument(
        "--page", type=Path, default=Path("build/demo.html"), metavar="FILE", help="where the page is written"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; returns 0 if every promise was kept and every fault without us was seen."""
    import anyio

    from counterfoil.programs.demo.show import show

    try:
        return anyio.run(show, arguments.seed, arguments.calls, arguments.page, backend=arguments.backend)
    except BaseExceptionGroup as group:
        if group.split(KeyboardInterrupt)[0] is not None:
            raise KeyboardInterrupt from None  # Ctrl-C, as it comes out of nested task groups
        raise
