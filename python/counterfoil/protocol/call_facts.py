"""What one `tools/call` asks for, apart from its JSON-RPC id: the tool, its params, its key.

It reads a POSTed body once; whether two calls are the same is for their holders to say.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

from counterfoil.errors import AmbiguousJson, MalformedCallKey
from counterfoil.protocol.canonical_params import join_members, read_call_text, read_members
from counterfoil.protocol.unreadable import UNREADABLE

METHOD = "tools/call"
#: The member of `_meta` by which a call gives its key.
KEY_MEMBER = "io.counterfoil/call"
VERSION = 1
MAX_KEY_CHARS = 256

#: Members of the params that say in which round of questions a call is, as canonical text.
_ROUND = (b'"inputResponses"', b'"requestState"')
_NAME = msgspec.json.Decoder(str)
_METHOD = f'"{METHOD}"'.encode()
_KEY_NAME = f'"{KEY_MEMBER}"'.encode()

OnDisconnect = Literal["cancel", "detach"]


class GivenKey(msgspec.Struct, frozen=True, kw_only=True):
    """The key that a caller gave its call; `on_disconnect` counts where closing the stream cancels.

    None where it was not given: as `cancel`, but not at once where closed streams have a grace.
    """

    key: str
    on_disconnect: OnDisconnect | None = None


class CallFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One call.

    `params` is the canonical text of everything but `_meta`.  `fingerprint` is the digest of that without the
    round of questions, and `round` the digest of the round, empty in the first.
    """

    tool: str
    params: bytes
    given: GivenKey | None = None
    fingerprint: bytes = b""
    round: bytes = b""


def read_call(body: bytes) -> CallFacts | None:
    """Read a `tools/call`; None for any other message, and for one that readers could take in two ways.

    Raises `MalformedCallKey` for a key of another shape or version, or in a body that is ambiguous.
    """
    try:
        found = read_call_text(body, _METHOD)
        if found is None:
            return None
        name, params, meta = found
        if not name.startswith(b'"'):
            return None
        try:
            tool = _NAME.decode(name)
        except UNREADABLE:
            return None  # a surrogate without its partner names no tool
        # A quote inside of a string is escaped, so this is a name; whose it is the members say.
        member = (read_members(meta) or {}).get(_KEY_NAME) if _KEY_NAME in meta else None
        if member is None:
            return CallFacts(tool=tool, params=params)
        return _read_keyed(tool, params, member)
    except AmbiguousJson as problem:
        if KEY_MEMBER.encode() in body:
            raise MalformedCallKey(f"the call has a key, and its params are ambiguous: {problem}") from None
        return None


def _read_keyed(tool: str, params: bytes, member: bytes) -> CallFacts:
    given = _read_key(msgspec.json.decode(member))
    if not any(part in params for part in _ROUND):
        return CallFacts(tool=tool, params=params, given=given, fingerprint=_digest(params))
    members = read_members(params) or {}
    answers = {part: members.pop(part) for part in _ROUND if part in members}
    return CallFacts(
        tool=tool,
        params=params,
        given=given,
        fingerprint=_digest(join_members(members.items())),
        round=_digest(join_members(answers.items())) if answers else b"",
    )


def _read_key(member: Any) -> GivenKey:
    if not isinstance(member, dict):
        raise MalformedCallKey(f"_meta[{KEY_MEMBER!r}] is no object")
    key, on_disconnect = member.get("key"), member.get("on_disconnect")
    version = member.get("v")
    if type(version) is not int or version != VERSION:
        raise MalformedCallKey(f"_meta[{KEY_MEMBER!r}].v is not {VERSION}, which this release reads")
    if type(key) is not str or not 0 < len(key) <= MAX_KEY_CHARS:
        raise MalformedCallKey(f"_meta[{KEY_MEMBER!r}].key is no string of 1 to {MAX_KEY_CHARS} characters")
    if on_disconnect not in (None, "cancel", "detach"):
        raise MalformedCallKey(f"_meta[{KEY_MEMBER!r}].on_disconnect is neither cancel nor detach")
    return GivenKey(key=key, on_disconnect=on_disconnect)


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=32).digest()
