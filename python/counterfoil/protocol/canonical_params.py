"""One text for equal JSON: what makes two calls identical, and what a fingerprint is taken of.

Numbers are equal by exact value, strings by code points, objects whatever the order of their members; what
readers could take in two ways has no canonical text.  It knows JSON only: callers choose the members.
"""

from __future__ import annotations

from collections.abc import Iterable

from counterfoil.errors import AmbiguousJson
from counterfoil.native import canonical_call, canonical_json, canonical_members

#: Deeper values are ambiguous: some reader between client and server may refuse them.
MAX_DEPTH = 64
#: More digits than any reader keeps make a number's value depend on the reader.
MAX_DIGITS = 400


def write_canonical(text: bytes, *, depth: int = MAX_DEPTH) -> bytes:
    """Return the canonical text of a JSON text: ASCII, no white space, members sorted by name.

    Raises `AmbiguousJson` for duplicate members, anything but UTF-8, numbers of more than `MAX_DIGITS` digits
    or an exponent of more than six, NaN and infinities, and values nested deeper than `depth`.
    """
    try:
        return canonical_json(text, depth)
    except ValueError as problem:
        raise AmbiguousJson(str(problem)) from None


def read_members(text: bytes, *, depth: int = MAX_DEPTH) -> dict[bytes, bytes] | None:
    """Return an object's members in canonical order, name and value as canonical text; None for no object.

    Raises as `write_canonical`.
    """
    try:
        return canonical_members(text, depth)
    except ValueError as problem:
        raise AmbiguousJson(str(problem)) from None


def read_call_text(body: bytes, method: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Return the name in a call's params, the params without `_meta`, and that, as canonical text.

    `method` is a JSON string; None for a message of another one, and without params.  A part that is not
    there is empty.  Raises as `write_canonical`.
    """
    try:
        return canonical_call(body, method, MAX_DEPTH)
    except ValueError as problem:
        raise AmbiguousJson(str(problem)) from None


def join_members(members: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the canonical text of an object of some members, which are in canonical order."""
    return b"{" + b",".join([name + b":" + value for name, value in members]) + b"}"
