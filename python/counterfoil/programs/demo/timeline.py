"""Draws timelines as inline SVG: one row per call, one bar per connection, a cross where it was cut."""

from __future__ import annotations

import re
from contextlib import suppress
from html import escape

import msgspec

from counterfoil.errors import ContinuityError
from counterfoil.programs.demo.agent import CallRecord
from counterfoil.programs.demo.columns import Column, label_of
from counterfoil.programs.demo.scenes import Scene
from counterfoil.protocol.continuity import read_claim
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.link import Answered, CutMade

_LEFT, _WIDTH, _NOTE, _ROW = 60, 1_000, 420, 18
#: A claim, as the header field or as the first comment.
_CLAIM = re.compile(rb"(?i)stream-continuity:? ([^\r\n]+)")


class Bar(msgspec.Struct, frozen=True):
    """One connection of a call: seconds from the start of the run, and what it was."""

    begins_s: float
    ends_s: float
    is_resume: bool
    cut: CutMade | None
    verdict: str
    """What the answer to a resume said of it, and how many events followed."""


def bars_by_call(
    exchanges: tuple[Exchange, ...], answered: tuple[Answered, ...], cuts: tuple[CutMade, ...]
) -> dict[str, list[Bar]]:
    """Return the connections of each call: its POSTs, and the resumes that followed in its session."""
    ends = {answer.number: answer for answer in answered}
    cut_by_number = {cut.exchange.number: cut for cut in cuts}
    latest: dict[str, str] = {}
    bars: dict[str, list[Bar]] = {}
    for exchange in exchanges:
        session = exchange.headers.get("mcp-session-id", "")
        label = label_of(exchange)
        if label is not None:
            latest[session] = label
        elif "last-event-id" in exchange.headers:
            label = latest.get(session)
        answer = ends.get(exchange.number)
        if label is None or answer is None:
            continue
        bar = Bar(
            answer.begun_s,
            answer.ended_s,
            "last-event-id" in exchange.headers,
            cut_by_number.get(exchange.number),
            _verdict_of(answer),
        )
        bars.setdefault(label, []).append(bar)
    return bars


def draw_column(column: Column) -> str:
    """Draw every call of a column."""
    bars = bars_by_call(column.exchanges, column.answered, column.cuts)
    rows = []
    for record in column.records:
        found = bars.get(record.label, [])
        rows.append((record.label, _join(_note(column, record), _replayed(found)), found))
    return _draw(rows)


def draw_scene(scene: Scene) -> str:
    """Draw the calls of a scene."""
    bars = bars_by_call(scene.exchanges, scene.answered, scene.cuts)
    return _draw([(label, _replayed(found), found) for label, found in bars.items()]) if bars else ""


def _note(column: Column, record: CallRecord) -> str:
    effects = column.effects.get(record.label, 0)
    text = {"right": "own answer", "other": "another call's answer", "error": "error", "hung": "hung"}
    return f"{text[record.ending]}, effect ×{effects}"


def _verdict_of(answer: Answered) -> str:
    """Say what the answer to a resume claimed, or that it claimed nothing, and what it carried."""
    status = answer.opening.partition(b" ")[2][:3].decode("latin-1")
    found = _CLAIM.search(answer.opening)
    claim = "no verdict"
    if found is not None:
        with suppress(ContinuityError):
            said = read_claim(found[1].decode("latin-1"))
            claim = f"{said.verdict} · {said.why}"
    return f"{status} {claim}, {answer.messages} event{'' if answer.messages == 1 else 's'}"


def _replayed(bars: list[Bar]) -> str:
    return "; ".join(bar.verdict for bar in bars if bar.is_resume)


def _join(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _draw(rows: list[tuple[str, str, list[Bar]]]) -> str:
    begins = min((bar.begins_s for _, _, bars in rows for bar in bars), default=0.0)
    longest = max((bar.ends_s - begins for _, _, bars in rows for bar in bars), default=1.0)
    scale = (_WIDTH - _LEFT - _NOTE - 10) / max(longest, 0.001)
    lines = [_row(at, label, note, bars, begins, scale) for at, (label, note, bars) in enumerate(rows)]
    height = len(rows) * _ROW + 8
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role=img>{"".join(lines)}</svg>'


def _row(at: int, label: str, note: str, bars: list[Bar], begins: float, scale: float) -> str:
    top = at * _ROW + 4
    parts = [f'<text x="0" y="{top + 11}">{escape(label)}</text>']
    for bar in bars:
        x = _LEFT + (bar.begins_s - begins) * scale
        width = max((bar.ends_s - bar.begins_s) * scale, 2)
        colour = "var(--replay)" if bar.is_resume else "var(--live)"
        parts.append(
            f'<rect x="{x:.1f}" y="{top + 2}" width="{width:.1f}" height="9" rx="2" fill="{colour}">'
            f"<title>{escape(_describe(bar))}</title></rect>"
        )
        if bar.cut is not None:
            parts.append(_cross(x + width, top + 6.5))
    parts.append(f'<text class=soft x="{_WIDTH - _NOTE}" y="{top + 11}">{escape(note)}</text>')
    return "".join(parts)


def _cross(x: float, y: float) -> str:
    return (
        f'<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8" stroke="var(--cut)" stroke-width="2" fill="none"/>'
    )


def _describe(bar: Bar) -> str:
    kind = "resume" if bar.is_resume else "call"
    told = f": {bar.verdict}" if bar.is_resume else ""
    if bar.cut is None:
        return f"{kind}, whole{told}"
    cut = bar.cut.cut
    return f"{kind}, cut {cut.place} by {cut.how.upper()} after {bar.cut.passed} bytes{told}"
