"""What one `tools/call` asks for, apart from its JSON-RPC id: the tool, digests of its params, its key.

It reads a POSTed body once; whether two calls are the same is for their holders to say.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

from counterfoil.errors import AmbiguousJson, MalformedCallKey
from counterfoil.protocol.canonical_params import Number, read_exactly, write_canonical

METHOD = "tools/call"
#: The member of `_meta` by which a call gives its key.
KEY_MEMBER = "io.counterfoil/call"
VERSION = 1
MAX_KEY_CHARS = 256

#: Members of the params that say in which round of questions a call is.
_ROUND = ("inputResponses", "requestState")

OnDisconnect = Literal["cancel", "detach"]


class GivenKey(msgspec.Struct, frozen=True, kw_only=True):
    """The key that a caller gave its call; `on_disconnect` counts where closing the stream cancels.

    None where it was not given: as `cancel`, but not at once where closed streams have a grace.
    """

    key: str
    on_disconnect: OnDisconnect | None = None


class CallFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One call.

    `params` is the digest of everything but `_meta`.  `fingerprint` leaves out the round of questions as
    well, and `round` is the digest of that, empty in the first.
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
        message = read_exactly(body)
        params = message.get("params") if isinstance(message, dict) else None
        if not isinstance(params, dict) or message.get("method") != METHOD:
            return None
        return _read(params)
    except AmbiguousJson as problem:
        if KEY_MEMBER.encode() in body:
            raise MalformedCallKey(f"the call has a key, and its params are ambiguous: {problem}") from None
        return None


def _read(params: dict[str, Any]) -> CallFacts | None:
    tool, meta = params.get("name"), params.pop("_meta", None)
    if type(tool) is not str:
        return None
    given = _read_key(meta[KEY_MEMBER]) if isinstance(meta, dict) and KEY_MEMBER in meta else None
    digest = _digest(params)
    if given is None:
        return CallFacts(tool=tool, params=digest)
    answers = {name: params.pop(name) for name in _ROUND if name in params}
    return CallFacts(
        tool=tool,
        params=digest,
        given=given,
        fingerprint=_digest(params),
        round=_digest(answers) if answers else b"",
    )


def _read_key(member: Any) -> GivenKey:
    if not isinstance(member, dict):
        raise MalformedCallKey(f"_meta[{KEY_MEMBER!r}] is no object")
    key, on_disconnect = member.get("key"), member.get("on_disconnect")
    version = member.get("v")
    if not isinstance(version, Number) or version != str(VERSION):
        raise MalformedCallKey(f"_meta[{KEY_MEMBER!r}].v is not {VERSION}, which this release reads")
    if type(key) is not str or not 0 < len(key) <= MAX_KEY_CHARS:
        raise MalformedCallKey(f"_meta[{KEY_MEMBER!r}].key is no string of 1 to {MAX_KEY_CHARS} characters")
    if on_disconnect not in (None, "cancel", "detach"):
        raise MalformedCallKey(f"_meta[{KEY_MEMBER!r}].on_disconnect is neither cancel nor detach")
    return GivenKey(key=key, on_disconnect=on_disconnect)


def _digest(params: dict[str, Any]) -> bytes:
    return hashlib.blake2b(write_canonical(params).encode("ascii"), digest_size=32).digest()
