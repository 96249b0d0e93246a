"""The codec of `Stream-Continuity`: header, first comment, `live` / `beat` / `end` comments, request side.

It says what was claimed, not whether to believe it: the classifier judges.  Gateway, front, testing and
client read and write through it; `docs/wire.md`, section 5, specifies it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import msgspec

from counterfoil.errors import ContinuityError, UnknownContinuityToken, UnknownContinuityVersion
from counterfoil.model.tokens import Executed, Next, VerdictToken, Why
from counterfoil.protocol.dictionary import Quoted, Token, Value, read_dictionary, write_dictionary

#: The header's name as we write it.
HEADER = "Stream-Continuity"
#: The version of the format.
VERSION = 1

#: What a comment of ours begins with.
_COMMENT = "stream-continuity "


class CallToken(StrEnum):
    """What a server says of the keyed-call extension (`call=`)."""

    OFFERED = "offered"  # on the answers to `initialize` and `server/discover`
    CANCEL = "cancel"  # honoured; a close cancels
    DETACH = "detach"  # honoured; the work goes on after a close
    ATTACHED = "attached"  # joined the attempt in flight
    STORED = "stored"  # the stored result
    CONFLICT = "conflict"  # same key, other arguments


class Want(StrEnum):
    """What a reader asks for (`want=`)."""

    STRICT = "strict"  # statuses instead of a 200 where no answer can follow
    NEW = "new"  # start after everything there is


class CommentKind(StrEnum):
    """What a comment after the claim says of its connection."""

    LIVE = "live"  # everything missed has been written
    BEAT = "beat"  # nothing new, and still there
    END = "end"  # the connection closes by intent; a close without it is a drop


class ContinuityClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The response members.  Each is absent where there is nothing to say.

    `after`, `first`, `last`: sequences; `window`: how many events the declared window guarantees.
    `epoch`, `digest`: as in event IDs; `echo`: the event ID received; `via`: who passed the resume on.
    """

    verdict: VerdictToken | None = None
    why: Why | None = None
    next: Next | None = None
    executed: Executed | None = None
    call: CallToken | None = None
    after: int | None = None
    first: int | None = None
    last: int | None = None
    window: int | None = None
    epoch: str | None = None
    digest: str | None = None
    echo: str | None = None
    via: str | None = None


class ConnectionComment(msgspec.Struct, frozen=True, kw_only=True):
    """A `live`, `beat` or `end` comment.

    `last` is the sequence last written to this connection; None on a response-only connection, which names
    its epoch alone.  `why` belongs to `end`.
    """

    kind: CommentKind
    epoch: str
    last: int | None = None
    why: Why | None = None


class ContinuityRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request members.  A client that sends the header at all is *aware*."""

    want: frozenset[Want] = frozenset()


def write_claim(claim: ContinuityClaim) -> str:
    """Write the value of the response header, members in the order of `ContinuityClaim`.

    Raises `ContinuityError` for a member that RFC 9651 cannot carry (a sequence of more than 15 digits).
    """
    return _write_members(claim)


def read_claim(text: str | bytes) -> ContinuityClaim:
    """Read the value of the response header.

    Unknown members and parameters are passed over, as RFC 9651 expects of a dictionary that may grow; an
    unknown `why` is `Why.SIGNALLED`.  Raises `UnknownContinuityVersion`, `UnknownContinuityToken` for a
    verdict, `next`, `executed` or `call` outside its set, otherwise `ContinuityError`.
    """
    members = _read_versioned(text)
    return ContinuityClaim(
        verdict=_token(members, "verdict", VerdictToken),
        why=_why(members),
        next=_token(members, "next", Next),
        executed=_token(members, "executed", Executed),
        call=_token(members, "call", CallToken),
        after=_integer(members, "after"),
        first=_integer(members, "first"),
        last=_integer(members, "last"),
        window=_integer(members, "window"),
        epoch=_string(members, "epoch"),
        digest=_string(members, "digest"),
        echo=_string(members, "echo"),
        via=_string(members, "via"),
    )


def write_comment(comment: ContinuityClaim | ConnectionComment) -> bytes:
    """Write a claim or a comment about the connection as an SSE comment with its blank line.

    A claim is the first line of the body and the same text as the header.  Raises as `write_claim`.
    """
    kind = f"{comment.kind} " if isinstance(comment, ConnectionComment) else ""
    return f": {_COMMENT}{kind}{_write_members(comment)}\n\n".encode("ascii")


def read_comment(text: str | bytes) -> ContinuityClaim | ConnectionComment | None:
    """Read what follows the colon of a comment, less one space; None for a comment that is not ours.

    Raises as `read_claim` for one that is ours and cannot be read.
    """
    line = _decode(text)
    if not line.startswith(_COMMENT):
        return None
    rest = line.removeprefix(_COMMENT)
    word, _, members_text = rest.partition(" ")
    if word not in CommentKind.__members__.values():
        return read_claim(rest)
    members = _read_versioned(members_text)
    epoch = _string(members, "epoch")
    if epoch is None:
        raise ContinuityError(f"a {word} comment without an epoch")
    kind = CommentKind(word)
    return ConnectionComment(kind=kind, epoch=epoch, last=_integer(members, "last"), why=_why(members))


def write_request(request: ContinuityRequest) -> str:
    """Write the value of the request header."""
    wanted = tuple(Token(want) for want in Want if want in request.want)
    return write_dictionary([("v", VERSION), *([("want", wanted)] if wanted else [])])


def read_request(text: str | bytes) -> ContinuityRequest:
    """Read the value of the request header.

    Unknown members and unknown wants are passed over: the answer says what was done.  Raises
    `UnknownContinuityVersion`, otherwise `ContinuityError`.
    """
    members = _read_versioned(text)
    if "want" not in members:
        return ContinuityRequest()
    wanted = members["want"]
    if not isinstance(wanted, tuple):
        raise ContinuityError("want is no inner list")
    return ContinuityRequest(want=frozenset(want for want in Want if Token(want) in wanted))


def _write_members(source: ContinuityClaim | ConnectionComment) -> str:
    members: list[tuple[str, Value]] = [("v", VERSION)]
    for name in source.__struct_fields__:
        value = getattr(source, name)
        if value is None or isinstance(value, CommentKind):
            continue
        if isinstance(value, StrEnum):
            members.append((name, Token(value)))
        else:
            members.append((name, Quoted(value) if isinstance(value, str) else value))
    return write_dictionary(members)


def _decode(text: str | bytes) -> str:
    # Latin-1 keeps positions; what is not ASCII is then refused as no legal character.
    return text.decode("latin-1") if isinstance(text, bytes) else text


def _read_versioned(text: str | bytes) -> dict[str, Value | None]:
    members = read_dictionary(_decode(text))
    version = members.get("v")
    if version != VERSION:
        named = f"version {version}" if isinstance(version, int) else "no version"
        raise UnknownContinuityVersion(f"Stream-Continuity of {named}; this release reads version {VERSION}")
    return members


Closed = TypeVar("Closed", bound=StrEnum)


def _token(members: dict[str, Value | None], name: str, closed: type[Closed]) -> Closed | None:
    if name not in members:
        return None
    value = members[name]
    if not isinstance(value, Token):
        raise ContinuityError(f"{name} is no token")
    try:
        return closed(str(value))
    except ValueError:
        raise UnknownContinuityToken(f"{name}={value[:40]} is not in the closed set of {name}") from None


def _why(members: dict[str, Value | None]) -> Why | None:
    try:
        return _token(members, "why", Why)
    except UnknownContinuityToken:
        return Why.SIGNALLED


def _integer(members: dict[str, Value | None], name: str) -> int | None:
    if name not in members:
        return None
    value = members[name]
    if not isinstance(value, int) or value < 0:
        raise ContinuityError(f"{name} is no integer of 0 or more")
    return value


def _string(members: dict[str, Value | None], name: str) -> str | None:
    if name not in members:
        return None
    value = members[name]
    if not isinstance(value, Quoted):
        raise ContinuityError(f"{name} is no string")
    return str(value)
