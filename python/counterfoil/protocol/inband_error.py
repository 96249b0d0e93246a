"""The in-band JSON-RPC error: what a waiting caller gets where its answer cannot be replayed.

One code, one shape of `error.data["io.counterfoil"]`; `docs/wire.md`, section 6, specifies it.  Store,
gateway and front write it, the client reads it; whether to believe it is decided with the claim on the
connection.
"""

from __future__ import annotations

from typing import Any

import msgspec

from counterfoil.errors import MalformedInbandError
from counterfoil.model.tokens import Executed, Next, VerdictToken, Why
from counterfoil.protocol.unreadable import UNREADABLE

#: Outside -32768 … -32000, which JSON-RPC 2.0 and MCP keep for themselves.
CODE = -31410
#: The member of `error.data` that is ours.
DATA_KEY = "io.counterfoil"
#: The version of the shape.
VERSION = 1

_MESSAGES = {
    Executed.NO: "The call was not executed. It is safe to send it again.",
    Executed.YES: "The call was executed and its answer is lost. Do not send it again.",
    Executed.UNKNOWN: "The answer is lost; the call may have been executed. Check before sending it again.",
}
_MAX_TEXT_CHARS = 256


class InbandEvidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts behind the error, none of them secret.

    `row` of the server's table, `status` of the upstream's HTTP answer, `epoch` and the sequences `asked`,
    `first`, `last`.  Sequences travel as decimal strings, because JSON numbers lose digits above 2^53.
    """

    row: int | None = None
    status: int | None = None
    epoch: str | None = None
    asked: int | None = None
    first: int | None = None
    last: int | None = None


class InbandError(msgspec.Struct, frozen=True, kw_only=True):
    """One in-band error.

    `request_id` is the caller's JSON-RPC id with its type (JSON-RPC has fractions, MCP has not); None where
    no call is known, as in the body of a 400.  `executed` says whether sending the call again can double its
    effect.
    """

    request_id: int | float | str | None
    why: Why
    executed: Executed
    verdict: VerdictToken | None = None
    next: Next | None = None
    evidence: InbandEvidence = InbandEvidence()


def write_inband_error(error: InbandError) -> bytes:
    """Write the JSON-RPC message as one line, ready to be the `data` of an SSE event or the body of a 400."""
    detail: dict[str, Any] = {"v": VERSION}
    if error.verdict is not None:
        detail["verdict"] = error.verdict
    detail["why"] = error.why
    if error.next is not None:
        detail["next"] = error.next
    detail["executed"] = error.executed
    evidence = msgspec.to_builtins(error.evidence)
    if evidence:
        detail["evidence"] = {
            name: str(value) if name in ("asked", "first", "last") else value
            for name, value in evidence.items()
        }
    return msgspec.json.encode(
        {
            "jsonrpc": "2.0",
            "id": error.request_id,
            "error": {"code": CODE, "message": _MESSAGES[error.executed], "data": {DATA_KEY: detail}},
        }
    )


class _Detail(msgspec.Struct, frozen=True, kw_only=True):
    v: int
    executed: Executed
    why: str
    verdict: VerdictToken | None = None
    next: Next | None = None
    evidence: dict[str, Any] = {}


def read_inband_error(message: bytes | str | dict[str, Any]) -> InbandError | None:
    """Read a JSON-RPC message; None where it is not our error.

    An unknown `why` is `Why.SIGNALLED`; unknown members are passed over.  Raises `MalformedInbandError` where
    code and key are ours and the rest is not, an unknown `verdict`, `next` or `executed` included: such an
    error still ends its request, as indeterminate.
    """
    if not isinstance(message, dict):
        try:
            message = msgspec.json.decode(message)
        except UNREADABLE:
            return None
        if not isinstance(message, dict):
            return None
    error = message.get("error")
    if not isinstance(error, dict) or error.get("code") != CODE:
        return None
    data = error.get("data")
    if not isinstance(data, dict) or DATA_KEY not in data:
        return None
    return _read_detail(message.get("id"), data[DATA_KEY])


def _read_detail(request_id: object, detail: object) -> InbandError:
    if isinstance(request_id, bool) or not isinstance(request_id, int | float | str | None):
        raise MalformedInbandError("the id of an in-band error is a number, a string or null")
    try:
        read = msgspec.convert(detail, _Detail)
    except msgspec.ValidationError as problem:
        raise MalformedInbandError(f"data[{DATA_KEY!r}]: {problem}") from None
    if read.v != VERSION:
        raise MalformedInbandError(f"data[{DATA_KEY!r}] of version {read.v}; this release reads {VERSION}")
    why = Why(read.why) if read.why in Why.__members__.values() else Why.SIGNALLED
    return InbandError(
        request_id=request_id,
        why=why,
        executed=read.executed,
        verdict=read.verdict,
        next=read.next,
        evidence=_read_evidence(read.evidence),
    )


def _read_evidence(evidence: dict[str, Any]) -> InbandEvidence:
    fields: dict[str, Any] = {}
    for name in ("asked", "first", "last"):
        if name in evidence:
            fields[name] = _sequence(name, evidence[name])
    for name in ("row", "status"):
        if name in evidence:
            if type(evidence[name]) is not int:
                raise MalformedInbandError(f"evidence.{name} is no integer")
            fields[name] = evidence[name]
    epoch = evidence.get("epoch")
    if epoch is not None and not (isinstance(epoch, str) and len(epoch) <= _MAX_TEXT_CHARS):
        raise MalformedInbandError("evidence.epoch is no short string")
    return InbandEvidence(epoch=epoch, **fields)


def _sequence(name: str, value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 19:
        return int(value)
    raise MalformedInbandError(f"evidence.{name} is no string of digits")
