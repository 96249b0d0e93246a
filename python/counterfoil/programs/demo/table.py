"""The demo's table: the columns side by side, as plain text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from counterfoil.model.tokens import HandlerKind
from counterfoil.programs.demo.columns import Column
from counterfoil.programs.demo.kills import Booked, Killed

#: A short name, what is counted, and how; the order is the table's.
ROWS: tuple[tuple[str, str, Callable[[Column], int]], ...] = (
    ("calls", "calls", lambda column: len(column.records)),
    ("cuts", "connections cut", lambda column: len(column.cuts)),
    ("right", "answered right at the first try", lambda column: column.right_at_once),
    ("again", "answered right after calling again", lambda column: column.right_again),
    ("other", "answered with another call's answer", lambda column: column.count("other")),
    ("error", "failed, even when called again", lambda column: column.count("error")),
    ("hung", "hung", lambda column: column.count("hung")),
    ("broken_progress", "answers with progress doubled or lost", lambda column: column.broken_progress),
    ("effects-0", "effect never happened", lambda column: column.count_effects(0)),
    ("effects-1", "effect happened once", lambda column: column.count_effects(1)),
    ("effects-2", "effect happened twice", lambda column: column.doubled_effects),
)


#: What is counted of naive agents, in a word.
NAIVE_ROWS = {
    "calls": "calls",
    "right": "right at once",
    "again": "right again",
    "error": "failed",
    "hung": "hung",
    "effects-1": "effect once",
    "effects-2": "twice or more",
}


def _booked(kind: HandlerKind, count: Callable[[Booked], int]) -> Callable[[Killed], int]:
    return lambda killed: next(count(booked) for booked in killed.booked if booked.kind is kind)


def _rows_of(kind: HandlerKind, name: str) -> tuple[tuple[str, str, Callable[[Killed], int]], ...]:
    rows = (
        ("calls", f"{name}: receipts", _booked(kind, lambda booked: len(booked.calls))),
        ("booked-1", f"{name}: booked once", _booked(kind, lambda booked: booked.count(1))),
        ("booked-0", f"{name}: not booked", _booked(kind, lambda booked: booked.count(0))),
        ("listed", f"{name}: listed as doubtful", _booked(kind, lambda booked: len(booked.listed))),
        ("wrong", f"{name}: promise broken", _booked(kind, lambda booked: booked.wrong)),
    )
    # Where every receipt is booked, there is nothing to say of those that are not.
    return rows if kind is HandlerKind.AT_MOST_ONCE else (rows[0], rows[1], rows[4])


#: The same for our own client, which is killed instead of cut.
KILLED_ROWS: tuple[tuple[str, str, Callable[[Killed], int]], ...] = (
    ("calls", "calls", lambda killed: len(killed.calls)),
    ("kills", "killed with -9 and started again", lambda killed: killed.kills),
    ("right", "answered right", lambda killed: len(killed.answered)),
    ("effects-0", "effect never happened", lambda killed: killed.count_effects(0)),
    ("effects-1", "effect happened once", lambda killed: killed.count_effects(1)),
    ("effects-2", "effect happened twice", lambda killed: killed.doubled_effects),
    *_rows_of(HandlerKind.TRANSACTIONAL, "transactional"),
    *_rows_of(HandlerKind.IDEMPOTENT, "idempotent"),
    *_rows_of(HandlerKind.AT_MOST_ONCE, "at most once"),
)


def lay_out(columns: Sequence[Column]) -> str:
    """Return the table as lines of text."""
    cells = [["", *(column.name for column in columns)]]
    cells += [[label, *(str(count(column)) for column in columns)] for _, label, count in ROWS]
    cells.append(["seconds", *(f"{column.seconds:.1f}" for column in columns)])
    return _lay_out_cells(cells)


def lay_out_killed(killed: Sequence[Killed]) -> str:
    """Return the table of our own client as lines of text."""
    cells = [["our client, killed", *(one.revision for one in killed)]]
    cells += [[label, *(str(count(one)) for one in killed)] for _, label, count in KILLED_ROWS]
    cells.append(["seconds", *(f"{one.seconds:.1f}" for one in killed)])
    return _lay_out_cells(cells)


def lay_out_naive(columns: Sequence[Column]) -> str:
    """Return the table of naive agents, a line for each way to the server."""
    rows = [row for row in ROWS if row[0] in NAIVE_ROWS]
    cells = [["naive agents", *(NAIVE_ROWS[key] for key, _, _ in rows)]]
    cells += [[column.name, *(str(count(column)) for _, _, count in rows)] for column in columns]
    return _lay_out_cells(cells)


def _lay_out_cells(cells: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
    lines = [_line(row, widths) for row in cells]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first = row[0].ljust(widths[0])
    return "  ".join([first, *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))])
