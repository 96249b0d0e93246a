"""The subset of RFC 9651 dictionaries that `Stream-Continuity` uses, read strictly and written canonically.

It knows no member of ours.  Only `continuity` calls it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from counterfoil.errors import ContinuityError

#: Longest text, most members, longest string: far above what we write.
MAX_CHARS = 1024
MAX_MEMBERS = 32
MAX_STRING_CHARS = 256
#: RFC 9651, section 3.3.1: an integer has at most 15 digits.
MAX_INTEGER = 999_999_999_999_999


class Quoted(str):
    """A string item, kept apart from a token."""

    __slots__ = ()


class Token(str):
    """A bare word such as `resumed`."""

    __slots__ = ()


#: What a member of ours can be; a tuple is an inner list of tokens.
Value = int | Quoted | Token | tuple[Token, ...]


_KEY = re.compile(r"[a-z*][a-z0-9_.*-]*")
_TOKEN = re.compile(r"[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*")
_INTEGER = re.compile(r"-?[0-9]{1,15}(?![0-9.])")
_STRING = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
#: Other kinds of item, which only members that we do not know may have: decimals, bytes, booleans, dates.
_OTHER = re.compile(r"-?[0-9]{1,12}\.[0-9]{1,3}(?![0-9.])|:[A-Za-z0-9+/=]*:|\?[01]|@-?[0-9]{1,15}(?![0-9.])")
_COMMA = re.compile(r"[ \t]*,[ \t]*")


def read_dictionary(text: str) -> dict[str, Value | None]:
    """Read a dictionary; None stands for an item of a kind that we do not use.

    Parameters are read and dropped.  Stricter than RFC 9651, section 4.2.2, in one point: a key that comes
    twice is an error instead of the last one winning, because two claims joined by a proxy must not become
    the better one.  Raises `ContinuityError` with the position.
    """
    if len(text) > MAX_CHARS:
        raise ContinuityError(f"Stream-Continuity has more than {MAX_CHARS} characters", position=MAX_CHARS)
    stripped = text.rstrip(" ")
    position = len(stripped) - len(stripped.lstrip(" "))
    members: dict[str, Value | None] = {}
    while position < len(stripped):
        start = position
        key, position = _take(_KEY, stripped, position, "a key")
        if key in members:
            raise ContinuityError(f"the member {key} comes twice", position=start)
        if len(members) == MAX_MEMBERS:
            raise ContinuityError(f"more than {MAX_MEMBERS} members", position=start)
        if stripped.startswith("=", position):
            members[key], position = _read_member(stripped, position + 1)
        else:
            members[key] = None  # RFC 9651: a key alone is Boolean true, which no member of ours is.
        position = _skip_parameters(stripped, position)
        if position < len(stripped):
            _, position = _take(_COMMA, stripped, position, "a comma")
            if position == len(stripped):
                raise ContinuityError("a comma at the end", position=position)
    return members


def _take(pattern: re.Pattern[str], text: str, position: int, what: str) -> tuple[str, int]:
    match = pattern.match(text, position)
    if match is None:
        raise ContinuityError(f"{what} was expected at position {position}", position=position)
    return match.group(), match.end()


def _read_member(text: str, position: int) -> tuple[Value | None, int]:
    if not text.startswith("(", position):
        return _read_item(text, position)
    tokens: list[Token] = []
    only_tokens = True
    position += 1
    while True:
        spaces = len(text[position:]) - len(text[position:].lstrip(" "))
        position += spaces
        if text.startswith(")", position):
            return (tuple(tokens) if only_tokens else None), position + 1
        if not spaces and text[position - 1] != "(":
            raise ContinuityError(f"a space was expected at position {position}", position=position)
        value, position = _read_item(text, position)
        position = _skip_parameters(text, position)
        if isinstance(value, Token):
            tokens.append(value)
        else:
            only_tokens = False


def _read_item(text: str, position: int) -> tuple[Value | None, int]:
    if match := _STRING.match(text, position):
        value = re.sub(r"\\(.)", r"\1", match.group(1))
        if len(value) > MAX_STRING_CHARS:
            raise ContinuityError(f"a string of more than {MAX_STRING_CHARS} characters", position=position)
        return Quoted(value), match.end()
    if match := _INTEGER.match(text, position):
        return int(match.group()), match.end()
    if match := _TOKEN.match(text, position):
        return Token(match.group()), match.end()
    if match := _OTHER.match(text, position):
        return None, match.end()
    raise ContinuityError(f"no item at position {position}", position=position)


def _skip_parameters(text: str, position: int) -> int:
    while text.startswith(";", position):
        position += 1
        while text.startswith(" ", position):
            position += 1
        _, position = _take(_KEY, text, position, "a parameter")
        if text.startswith("=", position):
            _, position = _read_item(text, position + 1)
    return position


def write_dictionary(members: Mapping[str, Value] | Iterable[tuple[str, Value]]) -> str:
    """Write members in the order given, in the one form of RFC 9651, section 4.1.2.

    Raises `ContinuityError` for an integer of more than 15 digits, or a string that is not printable ASCII.
    """
    pairs = members.items() if isinstance(members, Mapping) else members
    return ", ".join(f"{key}={_write_item(key, value)}" for key, value in pairs)


def _write_item(key: str, value: Value) -> str:
    if isinstance(value, tuple):
        return f"({' '.join(value)})"
    if isinstance(value, int):
        if not 0 <= value <= MAX_INTEGER:
            raise ContinuityError(f"{key} is outside 0 … {MAX_INTEGER}, the integers of RFC 9651")
        return str(value)
    if isinstance(value, Quoted):
        if len(value) > MAX_STRING_CHARS or not all(" " <= character <= "~" for character in value):
            raise ContinuityError(f"{key} is not at most {MAX_STRING_CHARS} characters of printable ASCII")
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return value
