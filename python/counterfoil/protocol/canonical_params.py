"""One text for equal JSON: what makes two calls identical, and what a fingerprint is taken of.

Numbers are equal by exact value, strings by code points, objects whatever the order of their members; what
readers could take in two ways has no canonical text.  It knows JSON only: callers choose the members.
"""

from __future__ import annotations

import json
import re
from typing import Any

from counterfoil.errors import AmbiguousJson

#: Deeper values are ambiguous: some reader between client and server may refuse them.
MAX_DEPTH = 64
#: More digits than any reader keeps make a number's value depend on the reader.
MAX_DIGITS = 400

_NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d{1,6}))?\Z", re.ASCII)
_STRING = json.JSONEncoder(ensure_ascii=True).encode


class Number(str):
    """A number as canonical text: `-?digits` without zeros around them, then `e` and the power of ten."""

    __slots__ = ()


def read_exactly(text: bytes) -> Any:
    """Read JSON with every number as `Number`; raises `AmbiguousJson`.

    Refused are duplicate members, anything but UTF-8, numbers of more than `MAX_DIGITS` digits or an exponent
    of more than six, NaN and infinities, and nesting deeper than `MAX_DEPTH`.
    """
    try:
        value = _DECODER.decode(text.decode("utf-8"))
    except (ValueError, RecursionError) as problem:
        raise AmbiguousJson(f"no JSON that every reader reads alike: {problem}") from None
    return value


def write_canonical(value: Any) -> str:
    """Write what `read_exactly` gave as canonical text: ASCII, no white space, members sorted by name.

    Raises `AmbiguousJson` for values nested too deeply.
    """
    pieces: list[str] = []
    _write(value, pieces, MAX_DEPTH)
    return "".join(pieces)


def _write(value: Any, pieces: list[str], depth: int) -> None:
    if depth == 0:
        raise AmbiguousJson(f"values are nested deeper than {MAX_DEPTH}")
    if isinstance(value, Number):
        pieces.append(value)
    elif isinstance(value, str):
        pieces.append(_STRING(value))
    elif isinstance(value, dict):
        separator = "{"
        for name in sorted(value):
            pieces.append(f"{separator}{_STRING(name)}:")
            _write(value[name], pieces, depth - 1)
            separator = ","
        pieces.append("}" if value else "{}")
    elif isinstance(value, list):
        separator = "["
        for item in value:
            pieces.append(separator)
            _write(item, pieces, depth - 1)
            separator = ","
        pieces.append("]" if value else "[]")
    else:
        pieces.append({True: "true", False: "false", None: "null"}[value])


def _canonical_number(text: str) -> Number:
    if text.isdigit() and len(text) <= MAX_DIGITS:  # by far the most common
        return Number("0" if text == "0" else _scaled("", text, 0))
    match = _NUMBER.match(text)
    if match is None or len(text) > MAX_DIGITS:
        raise ValueError("a number of more digits than every reader keeps")
    sign, whole, fraction, exponent = match.groups(default="")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return Number("0")
    return Number(_scaled(sign, digits, int(exponent or 0) - len(fraction)))


def _scaled(sign: str, digits: str, exponent: int) -> str:
    significant = digits.rstrip("0")
    exponent += len(digits) - len(significant)
    return f"{sign}{significant}e{exponent}" if exponent else f"{sign}{significant}"


def _without_duplicates(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        raise ValueError("a member is given twice")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_without_duplicates,
    parse_float=_canonical_number,
    parse_int=_canonical_number,
    parse_constant=_refuse_constant,
)
