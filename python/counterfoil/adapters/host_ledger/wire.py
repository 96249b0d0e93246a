"""What a process and the owner of their ledger say to each other: length-prefixed MessagePack over a socket.

It is no interface for others: both ends are of one release, and the socket is in a directory of one user.
`docs/wire.md`, section 9, describes it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

import counterfoil.errors as errors
from counterfoil.errors import CounterfoilError, LedgerError, LedgerFailed, PeerBroken
from counterfoil.model.ledger_keys import CallKey, EventPlace, PayloadKey, UnkeyedCall
from counterfoil.model.ledger_rows import LedgerRow, StreamMark
from counterfoil.model.ledger_verdicts import ClaimAnswer, Claimed, Entry, Settled
from counterfoil.native import Scope
from counterfoil.protocol.ledger_steps import Intent, KeptCall, Settlement

#: Of everything in this file; an end of another version is refused by name.
VERSION = 1
#: The length before each frame.
PREFIX_BYTES = 4
#: What a frame holds beside an answer of the longest kind.
FRAME_EXTRA_BYTES = 1 << 20


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The first frame of a process: its release, its life, and the ledger that it means."""

    v: int
    life: bytes
    ledger: str


class Welcome(msgspec.Struct, frozen=True, array_like=True):
    """The owner's answer to it; `refused` says why there will be no other."""

    fence: int = 0
    secret: bytes = b""
    refused: str = ""


class Claim(msgspec.Struct, frozen=True, array_like=True, tag="claim"):
    intent: Intent


class ClaimAgain(msgspec.Struct, frozen=True, array_like=True, tag="again"):
    claimed: Claimed


class Settle(msgspec.Struct, frozen=True, array_like=True, tag="settle"):
    claimed: Claimed
    settlement: Settlement


class Record(msgspec.Struct, frozen=True, array_like=True, tag="record"):
    intent: Intent
    settlement: Settlement


class Release(msgspec.Struct, frozen=True, array_like=True, tag="release"):
    claimed: Claimed


class Abandon(msgspec.Struct, frozen=True, array_like=True, tag="abandon"):
    claimed: Claimed


class AwaitInput(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    claimed: Claimed
    question: bytes


class BeginCancelling(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    claimed: Claimed


class MarkDelivered(msgspec.Struct, frozen=True, array_like=True, tag="delivered"):
    claimed: Claimed


class CloseCall(msgspec.Struct, frozen=True, array_like=True, tag="close"):
    claimed: Claimed


class NoteAdopted(msgspec.Struct, frozen=True, array_like=True, tag="adopted"):
    claimed: Claimed


class KeptCalls(msgspec.Struct, frozen=True, array_like=True, tag="kept"):
    after: bytes


class TakeCall(msgspec.Struct, frozen=True, array_like=True, tag="take"):
    call: KeptCall
    run: bytes


class Skip(msgspec.Struct, frozen=True, array_like=True, tag="skip"):
    scope: Scope
    place: EventPlace


class BeginStream(msgspec.Struct, frozen=True, array_like=True, tag="stream"):
    scope: Scope
    place: EventPlace
    ended: str
    record: bytes


class Mark(msgspec.Struct, frozen=True, array_like=True, tag="mark"):
    scope: Scope
    server: str
    stream: str


class ReadEntry(msgspec.Struct, frozen=True, array_like=True, tag="entry"):
    scope: Scope
    key: EventPlace | CallKey | PayloadKey | UnkeyedCall


class OpenPage(msgspec.Struct, frozen=True, array_like=True, tag="open"):
    after: bytes


class Resolve(msgspec.Struct, frozen=True, array_like=True, tag="resolve"):
    entry: Entry
    outcome: str
    note: str


Request = (
    Claim
    | ClaimAgain
    | Settle
    | Record
    | Release
    | Abandon
    | AwaitInput
    | BeginCancelling
    | MarkDelivered
    | CloseCall
    | NoteAdopted
    | KeptCalls
    | TakeCall
    | Skip
    | BeginStream
    | Mark
    | ReadEntry
    | OpenPage
    | Resolve
)

#: Done twice they would say something else than done once, so they are never sent a second time.
ONCE = (ClaimAgain, Record, NoteAdopted, Skip, Resolve)


class Numbered(msgspec.Struct, frozen=True, array_like=True):
    """A request and the number that its answer bears."""

    number: int
    request: Request


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """The work of that number is durable; the value's type follows from the request."""

    number: int
    value: msgspec.Raw


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="failed"):
    """The work of that number ended so: the name of an exception of ours, and its text."""

    number: int
    name: str
    text: str
    is_ambiguous: bool = False


class Bye(msgspec.Struct, frozen=True, array_like=True, tag="bye"):
    """The owner takes no more: of what it has not answered by now, nothing behind this number was begun."""

    last: int


Answer = Done | Failed | Bye


def _put_scope(value: Any) -> Any:
    if isinstance(value, Scope):
        return (value.tenant, value.principal, value.session)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise NotImplementedError(type(value).__name__)


def _take_scope(kind: type, value: Any) -> Any:
    if kind is Scope:
        tenant, principal, session = value
        return Scope(tenant=tenant, principal=principal, session=session)
    raise NotImplementedError(kind.__name__)


_ENCODE = msgspec.msgpack.Encoder(enc_hook=_put_scope).encode


def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_take_scope)


_HELLO, _WELCOME = _decoder(Hello), _decoder(Welcome)
_NUMBERED, _ANSWER = _decoder(Numbered), _decoder(Answer)
_NOTHING = _decoder(None)
_VALUES: dict[type[Any], msgspec.msgpack.Decoder[Any]] = {
    Claim: _decoder(ClaimAnswer),
    ClaimAgain: _decoder(Claimed),
    Settle: _decoder(Settled),
    Record: _decoder(ClaimAnswer | Settled),
    KeptCalls: _decoder(list[KeptCall]),
    TakeCall: _decoder(LedgerRow | None),
    BeginStream: _decoder(StreamMark),
    Mark: _decoder(StreamMark | None),
    ReadEntry: _decoder(Entry | None),
    OpenPage: _decoder(list[tuple[bytes, Entry | None]]),
    Resolve: _decoder(Settled),
}


def write_frame(message: Hello | Welcome | Numbered | Failed | Bye) -> bytes:
    """Write one frame."""
    body = _ENCODE(message)
    return len(body).to_bytes(PREFIX_BYTES, "big") + body


def write_done(number: int, value: object) -> bytes:
    """Write the answer of work that is done."""
    body = _ENCODE(Done(number, msgspec.Raw(_ENCODE(value))))
    return len(body).to_bytes(PREFIX_BYTES, "big") + body


def write_failed(number: int, error: BaseException) -> bytes:
    """Write the answer of work that ended in an exception."""
    is_ambiguous = isinstance(error, LedgerFailed) and error.ambiguous
    return write_frame(Failed(number, type(error).__name__, str(error), is_ambiguous))


def read_hello(frame: bytes) -> Hello:
    """Read the first frame of a process; raises `PeerBroken`."""
    hello: Hello = _read(_HELLO, frame)
    return hello


def read_welcome(frame: bytes) -> Welcome:
    """Read the first frame of an owner; raises `PeerBroken`."""
    welcome: Welcome = _read(_WELCOME, frame)
    return welcome


def read_request(frame: bytes) -> Numbered:
    """Read a request; raises `PeerBroken`."""
    numbered: Numbered = _read(_NUMBERED, frame)
    return numbered


def read_answer(frame: bytes) -> Answer:
    """Read an answer; raises `PeerBroken`."""
    answer: Answer = _read(_ANSWER, frame)
    return answer


def read_value(request: Request, value: msgspec.Raw) -> object:
    """Read what a request was answered with; raises `PeerBroken`."""
    return _read(_VALUES.get(type(request), _NOTHING), value)


def error_of(failed: Failed) -> Exception:
    """Give the exception that an answer stands for; one that this release does not know is a ledger's."""
    kind = getattr(errors, failed.name, None)
    if failed.name == "ValueError":
        return ValueError(failed.text)
    if kind is LedgerFailed:
        return LedgerFailed(failed.text, failed.is_ambiguous)
    if isinstance(kind, type) and issubclass(kind, CounterfoilError):
        with suppress(TypeError):  # one that is made of more than its text is no ledger's
            return kind(failed.text)
    return LedgerError(f"{failed.name}: {failed.text}")


def _read(decoder: msgspec.msgpack.Decoder[Any], frame: bytes | msgspec.Raw) -> Any:
    try:
        return decoder.decode(frame)
    except (msgspec.MsgspecError, CounterfoilError, ValueError, RecursionError) as error:
        raise PeerBroken("the other end of the ledger's channel sent what cannot be read") from error


class Frames:
    """Cuts what comes into frames; raises `PeerBroken` for one above `limit` bytes, before it is here."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """Take a piece, and give the frames that are whole now."""
        kept = self._kept
        kept += piece
        frames: list[bytes] = []
        begin, end = 0, len(kept)
        while end - begin >= PREFIX_BYTES:
            size = int.from_bytes(kept[begin : begin + PREFIX_BYTES], "big")
            if size > self._limit:
                raise PeerBroken(f"a frame of {size} bytes on the ledger's channel: at most {self._limit}")
            after = begin + PREFIX_BYTES + size
            if after > end:
                break
            frames.append(bytes(kept[begin + PREFIX_BYTES : after]))
            begin = after
        del kept[:begin]
        return frames
