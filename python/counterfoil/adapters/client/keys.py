"""What stands for a keyed call: its row in the ledger, its fingerprint, and what travels of its key.

It remembers nothing and sends nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from counterfoil.model.ledger_keys import CallKey, encode_key, idempotency_key_of
from counterfoil.model.ledger_rows import RowKind
from counterfoil.native import Scope
from counterfoil.protocol.ledger_steps import Intent

#: The member of `_meta` by which a call opts in.
CALL_META = "io.counterfoil/call"
#: Parts of the parameters that are no arguments: what answers a question has a digest of its own.
_ROUND = ("inputResponses", "requestState")
_canonical = msgspec.json.Encoder(order="deterministic").encode


def make_intent(
    scope: Scope,
    server: str,
    key: str,
    method: str,
    params: Mapping[str, Any] | None,
    *,
    honours_keys: bool = False,
) -> Intent:
    """Return the intent of a keyed call; equal arguments have equal fingerprints however they are ordered."""
    given = dict(params or {})
    arguments = {name: value for name, value in given.items() if name not in (*_ROUND, "_meta")}
    answers = {name: given[name] for name in _ROUND if name in given}
    return Intent(
        scope=scope,
        key=CallKey(route=server, key=key),
        kind=RowKind.CALL,
        label=method,
        fingerprint=_digest([method, arguments]),
        round=_digest(answers) if answers else b"",
        honours_keys=honours_keys,
    )


def _digest(value: object) -> bytes:
    return hashlib.blake2b(_canonical(value), digest_size=16).digest()


def stream_name(scope: Scope, server: str, key: str) -> str:
    """Return the name of a keyed call's stream, the same in every process."""
    return f"call-{idempotency_key_of(encode_key(scope, CallKey(route=server, key=key)))}"


def wire_key(secret: bytes, server: str, key: str) -> str:
    """Return what travels: a keyed hash, so that the key cannot be guessed (decision L8)."""
    text = len(server).to_bytes(4, "big") + server.encode() + key.encode()
    return hashlib.blake2b(text, key=secret[:64], digest_size=16).hexdigest()


def add_key(params: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
    """Return parameters that opt in; a call whose connection is lost is to go on, for the key to find it."""
    given = dict(params or {})
    meta = given.get("_meta")
    own = {"v": 1, "key": key, "on_disconnect": "detach"}
    given["_meta"] = {**(meta if isinstance(meta, Mapping) else {}), CALL_META: own}
    return given
