"""The demo's page: the table, the scenes, and a timeline of every call that was cut.

One HTML file: no network, no script, light and dark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TypeVar

from counterfoil.programs.demo.columns import Column
from counterfoil.programs.demo.kills import Killed
from counterfoil.programs.demo.scenes import Scene
from counterfoil.programs.demo.table import KILLED_ROWS, NAIVE_ROWS, ROWS
from counterfoil.programs.demo.timeline import draw_column, draw_scene

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5b6577; --line: #d5dae3; --paper: #ffffff;
  --right: #1f7a4d; --wrong: #b3261e; --cut: #b3261e; --wait: #c2c9d6; --replay: #2f6fd0; --live: #1f7a4d; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf2; --soft: #9aa5b8; --line: #333c4b;
  --paper: #12161d; --right: #5cc493; --wrong: #ff8a80; --cut: #ff8a80; --wait: #3b4557; --replay: #7fb0ff;
  --live: #5cc493; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0.2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p, li { max-width: 46rem; } .soft { color: var(--soft); }
table { border-collapse: collapse; width: 100%; } th, td { padding: 0.3rem 0.6rem; text-align: right;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; } td.bad { color: var(--wrong); font-weight: 600; }
.kept { color: var(--right); } .broken { color: var(--wrong); }
svg { width: 100%; height: auto; display: block; }
text { fill: var(--ink); font: 11px system-ui, sans-serif; }
text.soft { fill: var(--soft); } .scroll { overflow-x: auto; }
"""

#: Rows of the table in which anything but 0 is a fault.
_FAULTS = frozenset({"other", "error", "hung", "broken_progress", "effects-2", "effects-0", "wrong"})
Counted = TypeVar("Counted", Column, Killed)


def write_page(
    columns: Sequence[Column],
    scenes: Sequence[Scene],
    problems: Sequence[str],
    *,
    seconds: float,
    killed: Sequence[Killed] = (),
    naive: Sequence[Column] = (),
) -> str:
    """Return the page."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width, initial-scale=1'>",
        f"<title>Counterfoil: the demo</title><style>{_STYLE}</style><body>",
        "<h1>The same cuts, with and without proof of continuity</h1>",
        _summary(columns, problems, seconds),
        "<h2>What became of the calls</h2>",
        _table([column.name for column in columns], ROWS, columns),
        *_killed(killed),
        *_naive(naive),
        "<h2>Where a stream cannot be continued</h2>",
        *(_scene(scene) for scene in scenes),
        "<h2>Every call, from its request to its end</h2>",
        _legend(),
    ]
    timelines = (
        f"<h2>{escape(column.name)}</h2><div class=scroll>{draw_column(column)}</div>" for column in columns
    )
    return "\n".join([*parts, *timelines]) + "\n"


def _summary(columns: Sequence[Column], problems: Sequence[str], seconds: float) -> str:
    calls = len(columns[-1].records) if columns else 0
    state = (
        "<p class=kept>Every promise was kept.</p>"
        if not problems
        else "".join(f"<p class=broken>Broken: {escape(problem)}</p>" for problem in problems)
    )
    return (
        f"<p class=soft>{calls} calls a column, each cut once behind its first event; the agent makes a"
        f" failed one once more, in a new session. {seconds:.0f} s in all.</p>{state}"
    )


def _killed(killed: Sequence[Killed]) -> list[str]:
    if not killed:
        return []
    return [
        "<h2>Our own client, killed and started again</h2>",
        "<p class=soft>Each call under a key, the receipt booked in one of three ways, all in one SQLite"
        " ledger. The process is killed with -9 at places drawn from the seed, and the same command is run"
        " again. What can be known by nobody is listed, and never run again by itself.</p>",
        _table([f"our client, {one.revision}" for one in killed], KILLED_ROWS, killed),
    ]


def _naive(columns: Sequence[Column]) -> list[str]:
    if not columns:
        return []
    rows = [row for row in ROWS if row[0] in NAIVE_ROWS]
    return [
        "<h2>Agents that make their call again</h2>",
        "<p class=soft>Half of the calls are cut before any event, where no client has an id. The agent makes"
        " its call again, up to twice. Adoption gives the new call the answer of the old one; where a closed"
        " response is the cancellation, as in the newest revision, the call runs again.</p>",
        _table([column.name for column in columns], rows, columns),
    ]


def _table(
    names: Sequence[str],
    counts: Sequence[tuple[str, str, Callable[[Counted], int]]],
    columns: Sequence[Counted],
) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = []
    for key, label, count in counts:
        cells = []
        for column in columns:
            value = count(column)
            bad = " class=bad" if key in _FAULTS and value else ""
            cells.append(f"<td{bad}>{value}</td>")
        rows.append(f"<tr><td>{escape(label)}</td>{''.join(cells)}</tr>")
    return f"<table><tr><th></th>{head}</tr>{''.join(rows)}</table>"


def _scene(scene: Scene) -> str:
    state = "<span class=kept>kept</span>" if scene.kept else "<span class=broken>broken</span>"
    verdicts = ", ".join(
        f"{line.get('verdict')} · {line.get('why')} (row {line.get('row')})" for line in scene.verdicts
    )
    told = f"<br>verdict: {escape(verdicts)}" if verdicts else ""
    return (
        f"<p><strong>{escape(scene.name)}</strong>: {escape(scene.promise)} — {state}.<br>"
        f"<span class=soft>the client: {escape(scene.seen)}{told}</span></p>"
        f"<div class=scroll>{draw_scene(scene)}</div>"
    )


def _legend() -> str:
    return (
        "<p class=soft>A bar is one connection: from the request to the last byte that passed. A cross is"
        " where the link cut it; a bar behind a cross is the client asking again. Beside it stands what it"
        " was told: the status, the verdict with its reason, and how many events came behind it. A"
        " second call is the agent's own, after an error: there the effect happens twice.</p>"
    )
