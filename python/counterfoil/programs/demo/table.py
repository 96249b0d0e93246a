"""The demo's table: the columns side by side, as plain text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from counterfoil.programs.demo.columns import Column

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
    ("effects-2", "effect happened twice", lambda column: column.count_effects(2)),
)


def lay_out(columns: Sequence[Column]) -> str:
    """Return the table as lines of text."""
    cells = [["", *(column.name for column in columns)]]
    cells += [[label, *(str(count(column)) for column in columns)] for _, label, count in ROWS]
    cells.append(["seconds", *(f"{column.seconds:.1f}" for column in columns)])
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
    lines = [_line(row, widths) for row in cells]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first = row[0].ljust(widths[0])
    return "  ".join([first, *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))])
