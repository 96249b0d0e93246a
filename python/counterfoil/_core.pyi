"""The typed description of the Rust extension; checked by stubtest."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, final, overload

from typing_extensions import Buffer, TypeVar, disjoint_base

__all__ = [
    "AnswerTooLarge",
    "ChunkJoiner",
    "CounterfoilError",
    "Cursor",
    "DigestChain",
    "EncodeError",
    "EventId",
    "EventIds",
    "ForeignEventId",
    "ForkedHandle",
    "KeyCheck",
    "KeyFileError",
    "KeyFileExposed",
    "KeyInfo",
    "KeyRing",
    "KeyRingError",
    "LimitExceeded",
    "MalformedEventId",
    "ParserClosed",
    "ReaderBusy",
    "ReaderClosed",
    "ReaderCore",
    "ReaderTooSlow",
    "RelayBatch",
    "RelayCore",
    "RelaySeen",
    "ReplayCore",
    "ResumeAnswer",
    "Scope",
    "ScopeMissing",
    "ScopeTooLong",
    "SessionEnded",
    "SseBatch",
    "SseBlock",
    "SseComment",
    "SseEnd",
    "SseEvent",
    "SseLimitError",
    "SseParser",
    "StoreFull",
    "StoredEvents",
    "StreamEnded",
    "StreamToken",
    "TakenOver",
    "UnknownEventIdVersion",
    "UnknownStream",
    "UnstorableEvent",
    "__version__",
    "canonical_call",
    "canonical_json",
    "canonical_members",
    "encode_comment",
    "encode_event",
    "ids_agree",
]

__version__: str

class CounterfoilError(Exception): ...

# --- SSE ---

class EncodeError(CounterfoilError, ValueError):
    """A field cannot be written, because it would break the stream."""

class LimitExceeded(CounterfoilError, ValueError):
    """A bound was passed."""

    bound: str
    limit: int

class ParserClosed(CounterfoilError, RuntimeError):
    """This parser takes no bytes."""

class SseLimitError(LimitExceeded):
    """An event stream passed a bound of the parser."""

    position: int

_Data_co = TypeVar("_Data_co", bound=str | bytes, covariant=True, default=str)
_Item = TypeVar("_Item", default=SseEvent[str])

class _ParserLimits(Protocol):
    @property
    def line_bytes(self) -> int: ...
    @property
    def event_bytes(self) -> int: ...
    @property
    def event_lines(self) -> int: ...

@final
class SseEvent(Generic[_Data_co]):
    """One complete event; frozen, compared by content, hashable, picklable."""

    def __new__(
        cls,
        event: str,
        data: _Data_co,
        id: str | None = None,
        retry: int | None = None,
        last_event_id: str | None = None,
    ) -> Self: ...
    @property
    def event(self) -> str:
        """The event type; ``"message"`` when the stream named none."""
    @property
    def data(self) -> _Data_co:
        """The values of the block's ``data`` lines, joined with LF; ``""`` is an event too."""
    @property
    def id(self) -> str | None:
        """The block's own ``id``: absent is None, and ``""`` resets the cursor."""
    @property
    def retry(self) -> int | None:
        """The block's own ``retry`` in milliseconds, at most 2**63 - 1."""
    @property
    def last_event_id(self) -> str:
        """The last event ID after this event; it sticks until another ``id`` changes it."""
    @classmethod
    def __class_getitem__(cls, item: object, /) -> type[Self]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]: ...

@final
class SseComment:
    """One comment line; for a parser made with ``comments=True``."""

    def __new__(cls, text: str) -> Self: ...
    @property
    def text(self) -> str:
        """What follows the colon, less one leading space."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]: ...

@final
class SseBlock:
    """A block that ended without ``data``, so that it is no event; for ``blocks=True``."""

    def __new__(cls, event: str, id: str | None, retry: int | None, last_event_id: str) -> Self: ...
    @property
    def event(self) -> str: ...
    @property
    def id(self) -> str | None: ...
    @property
    def retry(self) -> int | None: ...
    @property
    def last_event_id(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]: ...

@final
class SseEnd:
    """How a stream ended."""

    def __new__(cls, truncated: bool, incomplete: SseEvent[Any] | None) -> Self: ...
    @property
    def truncated(self) -> bool:
        """The input ended inside an event, which is discarded; its ``id`` has moved nothing."""
    @property
    def incomplete(self) -> SseEvent[Any] | None:
        """With ``end(lenient=True)``: what was there of that event, if it had data.

        Its last line may be cut anywhere, and its ``last_event_id`` is the one before it.
        """
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]: ...

@final
class SseBatch:
    """The events that one chunk completed; a field is made when it is asked for.

    An index may be negative; ``IndexError`` when there is no such event.
    """

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> SseEvent[Any]: ...
    def __iter__(self) -> Iterator[SseEvent[Any]]: ...
    def data(self, index: int) -> bytes:
        """The data of one event as it came."""
    def all_data(self) -> list[bytes]:
        """The data of every event, in order: for relays, which need no more."""
    def view(self, index: int) -> memoryview:
        """The same without a copy of its own; it keeps the bytes of the whole batch alive."""
    def event(self, index: int) -> bytes:
        """The event type; ``b"message"`` when the stream named none."""
    def id(self, index: int) -> bytes | None:
        """The block's own ``id``: absent is None, and ``b""`` resets the cursor."""
    def last_event_id(self, index: int) -> bytes:
        """The last event ID after the event."""
    def retry(self, index: int) -> int | None:
        """The block's own ``retry`` in milliseconds."""
    def comments(self) -> list[tuple[int, bytes]]:
        """Every comment, with the index of the event that it came before (``comments=True``)."""

@final
class ChunkJoiner:
    """Joins the chunks of one HTTP/1.1 chunked body, so that whoever reads them behind it reads fewer.

    What is no chunk comes out in a form that every reader of chunks refuses.
    """

    def __new__(cls) -> ChunkJoiner: ...
    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the connection; give what a reader gets instead, maybe nothing."""

    @property
    def is_behind(self) -> bool:
        """Whether the last chunk has come, or what is none: all that follows passes unchanged."""

@final
class SseParser(Generic[_Item]):
    """An incremental event-stream parser (WHATWG HTML, sections 9.2.5 and 9.2.6) for one connection.

    The events are the same for every way of cutting the bytes, in linear time.

    ``limits`` is anything with ``line_bytes``, ``event_bytes`` and ``event_lines``, such as
    :class:`counterfoil.Limits`.  ``last_event_id`` seeds the cursor of a connection that resumes.
    ``data="bytes"`` leaves the data undecoded.  ``comments`` and ``blocks`` add :class:`SseComment` and
    :class:`SseBlock` to what ``feed`` gives, in the order of the stream.  One thread at a time: a second
    one gets ``ParserClosed``.
    """

    @overload
    def __new__(
        cls,
        *,
        limits: _ParserLimits | None = None,
        last_event_id: str | Buffer | None = None,
        data: Literal["str"] = "str",
        comments: Literal[False] = False,
        blocks: Literal[False] = False,
    ) -> SseParser[SseEvent[str]]: ...
    @overload
    def __new__(
        cls,
        *,
        limits: _ParserLimits | None = None,
        last_event_id: str | Buffer | None = None,
        data: Literal["bytes"],
        comments: Literal[False] = False,
        blocks: Literal[False] = False,
    ) -> SseParser[SseEvent[bytes]]: ...
    @overload
    def __new__(
        cls,
        *,
        limits: _ParserLimits | None = None,
        last_event_id: str | Buffer | None = None,
        data: Literal["str"] = "str",
        comments: bool = False,
        blocks: bool = False,
    ) -> SseParser[SseEvent[str] | SseComment | SseBlock]: ...
    @overload
    def __new__(
        cls,
        *,
        limits: _ParserLimits | None = None,
        last_event_id: str | Buffer | None = None,
        data: Literal["bytes"],
        comments: bool = False,
        blocks: bool = False,
    ) -> SseParser[SseEvent[bytes] | SseComment | SseBlock]: ...
    def feed(self, chunk: Buffer) -> list[_Item]:
        """Take the next bytes (any bytes-like object) and give what they complete.

        Raises :class:`SseLimitError`, at this and every later call, once a bound is passed; what the same
        chunk completed before the bad byte is given first, and the next call raises.  Raises
        :class:`ParserClosed` after ``end``.
        """
    def feed_batch(self, chunk: Buffer) -> SseBatch:
        """The same as one value that crosses from Rust once per chunk.  Raises as ``feed`` does."""
    def end(self, *, lenient: bool = False) -> SseEnd:
        """End the input and say whether it ended inside an event.  Raises as ``feed`` does."""
    @property
    def last_event_id(self) -> str:
        """The last event ID as of the last blank line; what a reconnection sends, unless it is ``""``."""
    @property
    def reconnection_time_ms(self) -> int | None:
        """The last valid ``retry`` field, at most 2**63 - 1."""
    @property
    def position(self) -> int:
        """Bytes of the stream accepted so far."""
    @property
    def held_bytes(self) -> int:
        """Bytes held for what is not complete yet."""
    @property
    def error(self) -> CounterfoilError | None:
        """The error that every further call raises."""
    @classmethod
    def __class_getitem__(cls, item: object, /) -> type[Self]: ...

def encode_event(
    data: str | Buffer | None,
    *,
    event: str | Buffer | None = None,
    id: str | Buffer | None = None,
    retry: int | None = None,
) -> bytes:
    """Write one event as a frame with its blank line.

    ``data`` is split at CR, LF and CRLF, which a reader gets back as LF; None writes no ``data`` line, so
    that readers see no event.  ``id=""`` writes an ``id`` line, which resets the reader's cursor; None writes
    none.
    Raises :class:`EncodeError` when ``event`` or ``id`` holds CR, LF or NUL, or a text has no UTF-8 form.
    """

def canonical_call(text: bytes, method: bytes, depth: int) -> tuple[bytes, bytes, bytes] | None:
    """What a call of this method asks for as canonical text: name, params without `_meta`, `_meta`.

    None for another message; a part that is not there is empty.  Raises as `canonical_json`.
    """

def canonical_json(text: bytes, depth: int) -> bytes:
    """The canonical text of a JSON text: equal for equal values.

    Raises `ValueError` where readers could take the text in two ways, and for values at `depth` or deeper.
    """

def canonical_members(text: bytes, depth: int) -> dict[bytes, bytes] | None:
    """Name and value of an object's members as canonical text, in canonical order; None for another value.

    Raises as `canonical_json`.
    """

def ids_agree(text: bytes, prefix: bytes, begin: int, first: int, last: int, end: int) -> bool:
    """Say whether only LF ends a line in `text[begin:end]`, and each id in `text[first:last]` has `prefix`.

    `first` and `last` are where a line ends, and `prefix` begins with that LF.
    """

def encode_comment(text: str | Buffer) -> bytes:
    """Write a comment with its blank line; text of several lines becomes several comment lines."""

# --- event IDs ---

class ForeignEventId(CounterfoilError, ValueError):
    """The text is no event ID of ours but of another scheme: opaque, to be kept and compared as it is."""

class MalformedEventId(CounterfoilError, ValueError):
    """A text that begins like an event ID of ours and is none; reading stopped at byte `position`."""

    reason: str
    position: int

class UnknownEventIdVersion(CounterfoilError, ValueError):
    """An event ID of another format version; only its number was read."""

    version: int

class ScopeTooLong(CounterfoilError, ValueError):
    """A tenant, principal or session is longer than `limit` bytes of UTF-8."""

    part: str
    limit: int

class KeyRingError(CounterfoilError, ValueError):
    """These keys make no ring, or the ring has no such key."""

class KeyFileError(CounterfoilError, ValueError):
    """A key file cannot be read or is none. The text repeats no secret."""

    path: str

class KeyFileExposed(KeyFileError, PermissionError):
    """A key file that others may read or write: `chmod 600` it, and rotate if somebody may have."""

@final
class Scope:
    """Whose streams: tenant, principal and session. None differs from the empty text.

    Each part is at most 4096 bytes of UTF-8; a longer one raises `ScopeTooLong`.
    """

    def __new__(
        cls, *, tenant: str | None = None, principal: str | None = None, session: str | None = None
    ) -> Scope: ...
    @property
    def tenant(self) -> str | None: ...
    @property
    def principal(self) -> str | None: ...
    @property
    def session(self) -> str | None: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, str | None]]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class StreamToken:
    """The identity of a stream: a random name with kind, owner and, for a call, the typed request id.

    Made from its text; raises `MalformedEventId` on any other spelling.
    """

    def __new__(cls, text: str) -> StreamToken: ...
    @staticmethod
    def mint(
        *,
        kind: Literal["call", "standalone"],
        random: bytes,
        request_id: int | str | None = None,
        owner: int = 0,
    ) -> StreamToken:
        """A token from 12 random bytes.

        A request id that has no place in an ID (an integer beyond 2^53 - 1, a text of more than 24
        characters or with others than `[A-Za-z0-9_-]`) is left out.
        """

    @property
    def kind(self) -> Literal["call", "standalone"]: ...
    @property
    def request_id(self) -> int | str | None: ...
    @property
    def owner(self) -> int: ...
    def __getnewargs__(self) -> tuple[str]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Cursor:
    """A reader's position: stream, epoch, sequence and digest, replaced together or not at all."""

    def __new__(cls, stream: str, epoch: str, sequence: int, digest: str) -> Cursor: ...
    @property
    def stream(self) -> str: ...
    @property
    def epoch(self) -> str: ...
    @property
    def sequence(self) -> int: ...
    @property
    def digest(self) -> str: ...
    def __getnewargs__(self) -> tuple[str, str, int, str]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class EventId:
    """One event ID, decoded. Reading it proves nothing: `KeyRing.check` does."""

    def __new__(cls, text: str | bytes) -> EventId: ...
    @staticmethod
    def parse(text: str | bytes) -> EventId:
        """Read the one spelling of an ID, as it came in a header or an `id` field.

        Raises `ForeignEventId` (another scheme), `UnknownEventIdVersion` or `MalformedEventId`.
        """

    @property
    def stream(self) -> StreamToken: ...
    @property
    def epoch(self) -> str: ...
    @property
    def key_id(self) -> str: ...
    @property
    def tag(self) -> str: ...
    @property
    def sequence(self) -> int: ...
    @property
    def digest(self) -> str: ...
    @property
    def cursor(self) -> Cursor: ...
    def __getnewargs__(self) -> tuple[str]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class KeyCheck:
    """What the MAC of an ID says about it. No bool: compare it."""

    VERIFIED: ClassVar[KeyCheck]
    FORGED: ClassVar[KeyCheck]
    UNKNOWN_KEY: ClassVar[KeyCheck]
    def __bool__(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __int__(self) -> int: ...

@final
class KeyInfo:
    """One key of a ring, without its secret; times in Unix seconds."""

    def __new__(cls, id: str, *, signs: bool, made_s: int, retired_s: int | None = None) -> KeyInfo: ...
    @property
    def id(self) -> str: ...
    @property
    def signs(self) -> bool: ...
    @property
    def made_s(self) -> int: ...
    @property
    def retired_s(self) -> int | None: ...
    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, int | None]]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class KeyRing:
    """The keys that sign and verify event IDs: one signs, several verify.

    Neither `repr` nor an error shows a secret. A pickle does hold them, as the key file does.
    """

    @staticmethod
    def random() -> KeyRing:
        """A ring of one random key that is written nowhere: cursors die with this process."""

    @staticmethod
    def from_file(path: str | os.PathLike[str]) -> KeyRing:
        """Read a key file that `counterfoil keys` wrote.

        Raises `KeyFileExposed` where others than the owner may read or write it, otherwise `KeyFileError`.
        """

    @staticmethod
    def from_text(text: str) -> KeyRing:
        """Read the text of a key file; raises `KeyFileError`."""

    @staticmethod
    def from_secret(secret: bytes, *, made_s: int) -> KeyRing:
        """A ring of one key from 32 random bytes."""

    def to_text(self) -> str:
        """The text of a key file with this ring in it. It holds the secrets."""

    @property
    def is_ephemeral(self) -> bool:
        """Whether the key was drawn at start and is written nowhere."""

    @property
    def keys(self) -> tuple[KeyInfo, ...]:
        """The keys without their secrets, the signing one first."""

    def rotated(self, secret: bytes, *, now_s: int) -> KeyRing:
        """A ring in which a new key signs and these still verify; `KeyRingError` above 16 keys."""

    def without(self, key_id: str) -> KeyRing:
        """A ring without one of the keys that only verify; raises `KeyRingError` for any other id."""

    def check(self, scope: Scope, event_id: EventId) -> KeyCheck:
        """Judge an ID's tag in this scope, in constant time."""

    def seal(self, message: bytes) -> str:
        """Seal a message of one process to another that holds the same ring; returns ASCII text."""

    def check_seal(self, message: bytes, seal: bytes) -> KeyCheck:
        """Judge a seal in constant time; text that is none is forged."""

    def event_id(
        self, scope: Scope, *, stream: StreamToken, epoch: str, sequence: int, digest: str
    ) -> EventId:
        """The ID of one event, tagged by the signing key."""

    def digest_chain(self, scope: Scope, *, stream: StreamToken, epoch: str) -> DigestChain:
        """The digest chain of an epoch that is being minted."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class DigestChain:
    """The running digest of one stream and epoch; made by `KeyRing.digest_chain`."""

    @property
    def current(self) -> str:
        """The digest after the last event; before the first one, the one that the echo with 0 carries."""

    def append(self, sequence: int, *, event: bytes | None = None, data: bytes) -> str:
        """Move on by one event as it is sent; the new digest."""

# --- replay store ---

class AnswerTooLarge(LimitExceeded):
    """An answer has no room in the store."""

    bytes: int

class ForkedHandle(CounterfoilError, RuntimeError):
    """A handle made before a fork was used after it."""

class ReaderBusy(CounterfoilError, RuntimeError):
    """Another task waits on this reader."""

class ReaderClosed(CounterfoilError, RuntimeError):
    """The reader was closed by its owner."""

class ReaderTooSlow(CounterfoilError, RuntimeError):
    """The window moved past this reader."""

    first: int
    last: int

class ScopeMissing(CounterfoilError, ValueError):
    """A scope needs a session or a principal."""

class SessionEnded(CounterfoilError, LookupError):
    """The session is known to have ended, or belongs to another principal."""

class StoreFull(LimitExceeded):
    """A new stream or session was refused at a bound."""

class StreamEnded(CounterfoilError, RuntimeError):
    """The stream is over and everything of it was read, or it takes no more events."""

    why: str

class TakenOver(CounterfoilError, RuntimeError):
    """A newer connection reads this stream now."""

class UnknownStream(CounterfoilError, LookupError):
    """No such stream in this scope."""

class UnstorableEvent(CounterfoilError, ValueError):
    """An event that takes no sequence."""

class _StoreLimits(Protocol):
    @property
    def window_events(self) -> int: ...
    @property
    def window_bytes(self) -> int: ...
    @property
    def window_age_s(self) -> float: ...
    @property
    def event_bytes(self) -> int: ...
    @property
    def total_bytes(self) -> int: ...
    @property
    def reserve_bytes(self) -> int: ...
    @property
    def principal_share(self) -> int: ...
    @property
    def streams(self) -> int: ...
    @property
    def session_streams(self) -> int: ...
    @property
    def sessions(self) -> int: ...
    @property
    def grace_s(self) -> float: ...
    @property
    def tombstones(self) -> int: ...
    @property
    def tombstone_age_s(self) -> float: ...
    @property
    def stream_idle_s(self) -> float: ...
    @property
    def session_idle_s(self) -> float: ...
    @property
    def ended_sessions(self) -> int: ...

@disjoint_base
class ReplayCore:
    """The replay store of one process; `counterfoil.ReplayStore` is its public face."""

    def __new__(
        cls, *, limits: _StoreLimits, keys: KeyRing, clock: Callable[[], float] | None = None
    ) -> Self: ...
    def open_session(self, scope: Scope) -> None:
        """Remember a session from its `initialize` on; `StoreFull` at a bound."""
    def open_call(
        self, scope: Scope, request_ids: Iterable[int | float | str], *, owner: int = 0
    ) -> StreamToken:
        """Open the stream of one POST that answers `request_ids`; `StoreFull` at a bound."""
    def open_standalone(self, scope: Scope, *, owner: int = 0) -> StreamToken:
        """The standalone stream of a session: the one it has, or a new one."""
    def append(
        self, scope: Scope, stream: StreamToken, data: str | Buffer, *, event: str | None = None
    ) -> str:
        """Append one event; its ID."""
    def append_many(self, scope: Scope, stream: StreamToken, events: Iterable[str | Buffer]) -> EventIds:
        """Append several events in one step; their IDs.  Readers are woken once."""
    def settle(self, scope: Scope, stream: StreamToken, data: str | Buffer) -> str | None:
        """Append the error that settles a call whose stream ended without an answer."""
    def position_id(self, scope: Scope, stream: StreamToken, position: int) -> str | None:
        """The ID of a position, which an echo carries; None if the digest there is not known."""
    def end_stream(self, scope: Scope, stream: StreamToken, *, why: str = "closed") -> None:
        """End a stream without an answer: "closed", "cancelled" or "adopted"."""
    def renew_epoch(self, scope: Scope, stream: StreamToken) -> None:
        """Give a standalone stream whose history broke a new epoch."""
    def delete_session(self, scope: Scope, *, keep: Iterable[StreamToken] | None = None) -> list[StreamToken]:
        """Delete a session; the calls of it that were not answered."""
    def set_keys(self, keys: KeyRing) -> None:
        """Sign new streams and new appends with another ring; verify with it."""
    def sweep(self) -> None:
        """Sweep everything that is due."""
    def _attach(
        self, scope: Scope, stream: StreamToken, *, after: int = 0, aware: bool = False
    ) -> ReaderCore: ...
    def _resume(
        self,
        scope: Scope,
        cursor: str | bytes | None,
        *,
        aware: bool,
        want_new: bool,
        attach_lost: bool,
        owner: int,
    ) -> ResumeAnswer: ...
    def _resume_many(
        self,
        asks: list[tuple[Scope, str | bytes | None]],
        *,
        aware: bool,
        attach_lost: bool,
        owner: int,
    ) -> list[ResumeAnswer]: ...
    def _open_relay(
        self,
        scope: Scope,
        stream: StreamToken,
        *,
        limits: _ParserLimits,
        last_event_id: str = "",
        takes_anything: bool = False,
    ) -> RelayCore: ...
    def _statistics(self) -> dict[str, Any]: ...

@final
class EventIds(Sequence[str]):
    """The IDs of events that were appended or read in one step; only those that are looked at become text."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, place: int, /) -> str: ...
    @overload
    def __getitem__(self, place: slice, /) -> list[str]: ...
    def __iter__(self) -> Iterator[str]: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    def index(self, value: object, start: int | None = None, stop: int | None = None) -> int:
        """Where an ID stands first."""
    def count(self, value: object) -> int:
        """How often an ID is there: once or not at all."""

@final
class StoredEvents(Sequence[tuple[str, str, bytes]]):
    """Events of one read: a sequence of `(id, event, data)`, and the same by columns, which cost less.

    `event` is `"message"` where the event has no type, and the lines of `data` are joined by LF.
    """

    @property
    def ids(self) -> EventIds:
        """The ID of each; only those that are looked at become text."""
    @property
    def events(self) -> tuple[str, ...]:
        """The type of each."""
    @property
    def data(self) -> tuple[bytes, ...]:
        """The data of each."""
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, place: int, /) -> tuple[str, str, bytes]: ...
    @overload
    def __getitem__(self, place: slice, /) -> list[tuple[str, str, bytes]]: ...
    def __iter__(self) -> Iterator[tuple[str, str, bytes]]: ...
    def index(self, value: object, start: int = 0, stop: int = ...) -> int:
        """Where an event stands first."""
    def count(self, value: object) -> int:
        """How often an event is there: once or not at all."""

@final
class ReaderCore:
    """One reader of one stream, until it is closed or dropped."""

    def read(self, max_bytes: int = 262144) -> bytes: ...
    def read_events(self, max_bytes: int = 262144, *, max_events: int | None = None) -> StoredEvents: ...
    def arm(self, waker: Callable[[], object]) -> bool: ...
    def disarm(self) -> None: ...
    def close(self) -> None: ...
    def id_at(self, sequence: int) -> str | None: ...
    @property
    def position(self) -> int | None: ...
    @property
    def has_caught_up(self) -> bool: ...
    @property
    def has_read_answer(self) -> bool: ...
    @property
    def is_parked(self) -> bool: ...

@final
class ResumeAnswer:
    """What the store decided, as plain values."""

    def _facts(
        self,
    ) -> tuple[
        int,
        str,
        str,
        str,
        int | None,
        int | None,
        int | None,
        int | None,
        tuple[int, int] | None,
        tuple[int | str, ...],
    ]: ...
    @property
    def row(self) -> int:
        """The row of the table that matched."""
    @property
    def verdict(self) -> str: ...
    @property
    def why(self) -> str: ...
    @property
    def next(self) -> str: ...
    @property
    def asked(self) -> int | None:
        """The sequence asked for, where the stream was found."""
    @property
    def window(self) -> tuple[int, int] | None:
        """First and last sequence of the window; the first is one more when it is empty."""
    @property
    def after(self) -> int | None:
        """The position that the reader starts after."""
    @property
    def digest(self) -> str | None:
        """The digest there."""
    @property
    def gap(self) -> tuple[int, int] | None:
        """First and last sequence lost."""
    @property
    def request_ids(self) -> tuple[int | str, ...]:
        """Requests whose answers were in the gap."""
    @property
    def lost_requests(self) -> tuple[int | str, ...]:
        """Requests of the server that left the window and may be unanswered."""
    @property
    def stream(self) -> StreamToken | None:
        """The stream that is attached, or that the cursor names."""
    @property
    def epoch(self) -> str | None:
        """The current epoch, where it may be told."""
    @property
    def attached(self) -> Literal["nothing", "events", "answers"]: ...
    @property
    def settle(self) -> Literal["nothing", "append", "write"]:
        """What becomes of the in-band error: append it with `settle`, write it without ID, or neither."""
    @property
    def ended(self) -> str | None:
        """Why the stream is over, if it is."""
    @property
    def hold_s(self) -> float:
        """Seconds to hold the connection before it is answered: it came back too often for nothing."""
    @property
    def reader(self) -> ReaderCore | None: ...

@final
class RelayCore:
    """The relay of one upstream connection into one stream; fed by one task at a time."""

    def feed(self, chunk: Buffer, *, reader: ReaderCore | None = None) -> RelayBatch:
        """Take a chunk; with `reader`, also read for it, in the same step."""
    def pass_on(self, reader: ReaderCore, chunk: Buffer) -> bytes:
        """Take a chunk and return what `reader` reads then, in one step.

        Who waits on that reader is woken only for more than is returned; the end of the stream, and all that
        comes with what stops this relay, which is raised, is left to it.
        """
    def end(self) -> bool:
        """The upstream's connection is over; True if it ended inside an event, which is discarded."""
    @property
    def last_event_id(self) -> str:
        """The upstream's last event ID as of the last thing that was taken."""
    @property
    def has_ended(self) -> bool:
        """The stream got its last answer by this relay."""
    @property
    def stream(self) -> StreamToken:
        """The stream that is appended to."""

@final
class RelayBatch:
    """What one chunk held."""

    @property
    def seen(self) -> list[RelaySeen]:
        """Everything that was seen, in order."""
    @property
    def notable(self) -> list[RelaySeen]:
        """Only requests and answers, and what was not appended: what a gateway has to act on."""
    @property
    def appended(self) -> int:
        """Events that were appended."""
    def check(self) -> None:
        """Raise what was refused, or why nothing more is read, if so."""
    @property
    def frames(self) -> bytes:
        """The frames that were read for the reader."""
    @property
    def has_ended(self) -> bool:
        """The stream has all its answers now."""
    @property
    def retry_ms(self) -> int | None:
        """The upstream's last `retry`, if this chunk had one."""
    @property
    def refused(self) -> CounterfoilError | None:
        """Why an event was refused (`AnswerTooLarge`, `StreamEnded`), if one was."""
    @property
    def failed(self) -> CounterfoilError | None:
        """Why the upstream's bytes are read no further (`SseLimitError`, `ParserClosed`), if so."""

@final
class RelaySeen:
    """One thing that was seen in a chunk."""

    @property
    def what(
        self,
    ) -> Literal["appended", "trimmed", "refused", "echo", "comment", "dropped", "invalid", "block"]: ...
    @property
    def kind(self) -> Literal["request", "notification", "result", "error", "batch", "invalid"]: ...
    @property
    def id(self) -> int | str | None:
        """The message's id with its type; None where it has none."""
    @property
    def method(self) -> str | None: ...
    @property
    def text(self) -> str | None:
        """A comment's text, the id of an echo or a block, or the name of a dropped event."""
    @property
    def sequence(self) -> int:
        """Its sequence in our stream; 0 where it has none."""
