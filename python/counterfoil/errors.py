"""The exceptions that Counterfoil raises, as one tree.

The root is made in Rust, so that the extension never imports Python code of ours.
"""

from counterfoil._core import AnswerTooLarge as AnswerTooLarge
from counterfoil._core import CounterfoilError as CounterfoilError
from counterfoil._core import EncodeError as EncodeError
from counterfoil._core import ForeignEventId as ForeignEventId
from counterfoil._core import ForkedHandle as ForkedHandle
from counterfoil._core import KeyFileError as KeyFileError
from counterfoil._core import KeyFileExposed as KeyFileExposed
from counterfoil._core import KeyRingError as KeyRingError
from counterfoil._core import LimitExceeded as LimitExceeded
from counterfoil._core import MalformedEventId as MalformedEventId
from counterfoil._core import ParserClosed as ParserClosed
from counterfoil._core import ReaderBusy as ReaderBusy
from counterfoil._core import ReaderClosed as ReaderClosed
from counterfoil._core import ReaderTooSlow as ReaderTooSlow
from counterfoil._core import ScopeMissing as ScopeMissing
from counterfoil._core import ScopeTooLong as ScopeTooLong
from counterfoil._core import SessionEnded as SessionEnded
from counterfoil._core import SseLimitError as SseLimitError
from counterfoil._core import StoreFull as StoreFull
from counterfoil._core import StreamEnded as StreamEnded
from counterfoil._core import TakenOver as TakenOver
from counterfoil._core import UnknownEventIdVersion as UnknownEventIdVersion
from counterfoil._core import UnknownStream as UnknownStream
from counterfoil._core import UnstorableEvent as UnstorableEvent

# --- gateway


class UpstreamError(CounterfoilError, ConnectionError):
    """The server behind the gateway could not be asked, or did not finish its answer."""


class UpstreamUnreachable(UpstreamError):
    """Nothing of the request reached the upstream: it was not applied, and may be sent again."""


class UpstreamBroken(UpstreamError):
    """The exchange broke after the request may have arrived: what became of it is indeterminate."""


class RequestRefused(CounterfoilError):
    """The gateway refuses a request before anything goes upstream; `field` is what it is about."""

    def __init__(self, status: int, field: str, reason: str) -> None:
        super().__init__(status, field, reason)
        self.status = status
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


class RequestOverLimit(RequestRefused):
    """A request meets a bound of the gateway; `field` is the bound's name in the configuration."""


class ConfigError(CounterfoilError, ValueError):
    """A setting is missing, contradictory or unknown; `key` is its name in the configuration."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(key, reason)
        self.key = key
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}"


class AmbiguousJson(CounterfoilError, ValueError):
    """JSON that two readers may take in two ways: nothing is said to be equal to it."""


class MalformedCallKey(CounterfoilError, ValueError):
    """A call's `_meta["io.counterfoil/call"]` is not as documented: correct it, or leave it out."""


class GatewayNotRunning(CounterfoilError, RuntimeError):
    """The gateway was asked before it was started."""


# --- workers and peers


class PeerError(CounterfoilError, ConnectionError):
    """Another process of the same gateway could not be asked, or did not finish its reply."""


class PeerAbsent(PeerError):
    """Nothing listens at its address: nothing was asked."""


class PeerBroken(PeerError):
    """The exchange broke, fell silent, or was not what one process of a gateway says to another."""


# --- event store


class SessionUnknown(CounterfoilError, RuntimeError):
    """The event store was called by no transport that it knows, and was not bound to a session."""


# --- resumption


class SSEResumptionInvariantError(CounterfoilError, RuntimeError):
    """The first replayed event does not continue the cursor, or its effect may already have happened."""


class StreamResumptionViolation(CounterfoilError, RuntimeError):
    """The event must not be applied as part of this stream."""


# --- what travels: Stream-Continuity and the in-band error


class ContinuityError(CounterfoilError, ValueError):
    """A `Stream-Continuity` text cannot be read or written; `position` is where reading stopped.

    Treat it as a claim that says nothing good: there is no evidence of continuity in it.
    """

    position: int

    def __init__(self, text: str, *, position: int = 0) -> None:
        super().__init__(text)
        self.position = position


class UnknownContinuityToken(ContinuityError):
    """A token outside its closed set, such as a verdict of a newer format; it is never passed over."""


class UnknownContinuityVersion(ContinuityError):
    """A `Stream-Continuity` text of another format version, or of none."""


class MalformedInbandError(CounterfoilError, ValueError):
    """A JSON-RPC error with our code whose `data["io.counterfoil"]` does not have our shape."""


# --- machines


class StreamStateError(CounterfoilError, RuntimeError):
    """The caller told a state machine of something that cannot happen in its state."""


class StreamRecordUnreadable(CounterfoilError, ValueError):
    """What was kept of a stream is of a newer version, or damaged: its stream starts without a cursor."""


class DispatchStateError(CounterfoilError, RuntimeError):
    """A step of a dispatch came in a state that does not know it."""


# --- ledger and handlers ---


class LedgerError(CounterfoilError):
    """Something about a ledger; nothing was written unless the class says otherwise."""


class CallLeft(LedgerError):
    """An identical call lies in the ledger that a process left when it died: take it over first."""


class CallElsewhere(CallLeft):
    """Another process has just taken over what a dead one had left: ask again when that is known."""


class LedgerBusy(LedgerError):
    """The database stayed locked, or the queue is full; nothing was written, try again."""


class LedgerClosed(LedgerError):
    """The ledger is not open; enter it with `async with`, or with `with ledger.blocking()`."""


class LedgerCorrupt(LedgerError):
    """The file is not a ledger, or its own records contradict each other."""


class LedgerFailed(LedgerError):
    """The disk refused a write; `ambiguous` says that it may have taken it all the same.

    The stream must end here.  When the store is back the row is read first, and says which it was.
    """

    def __init__(self, message: str, ambiguous: bool = False) -> None:
        super().__init__(message, ambiguous)
        self.ambiguous = ambiguous

    def __str__(self) -> str:
        return str(self.args[0])


class LedgerFenced(LedgerError):
    """A later owner has taken the ledger over: this one writes nothing any more."""


class LedgerFull(LedgerError):
    """Too many entries wait for their outcome: resolve the indeterminate ones, or raise the limit."""


class LedgerInUse(LedgerError):
    """Another process, or another ledger of this one, owns the database; readers are welcome beside it."""


class LedgerReadOnly(LedgerError):
    """The database or its folder cannot be written."""


class LedgerSchemaNewer(LedgerError):
    """The file was written by a later release than this one can read."""


class LedgerStalled(LedgerError):
    """A handler does not return, and holds the thread that writes the ledger."""


class StaleAttempt(LedgerError):
    """The row has moved on since this attempt began: what it wanted to write no longer counts."""


class TransactionMissing(LedgerError):
    """Joined mode writes inside the caller's transaction, and none is open (autocommit)."""


class TransactionOpen(LedgerError):
    """Only outside a transaction can be said what is durable."""


class UnsafeStore(LedgerError):
    """The store as it is set up could lose or repeat an effect, so nothing starts."""

    exit_code = 3


class ReentrantCall(CounterfoilError, RuntimeError):
    """A transactional handler called its own ledger; it may only use the transaction it was given."""


class HandlerError(CounterfoilError):
    """Something about a handler of the application."""


class UnknownHandlerKind(HandlerError, ValueError):
    """A handler kind is `transactional`, `idempotent` or `at_most_once`."""


class UnsafeHandler(HandlerError, TypeError):
    """A handler's shape does not fit its kind, or its kind is not safe with this ledger."""


class HandlerExists(HandlerError, ValueError):
    """The name has a handler already."""


class HandlerTooSlow(HandlerError, TimeoutError):
    """A transactional handler passed its time limit; its work was rolled back."""


class TransactionLost(HandlerError, RuntimeError):
    """The transaction was rolled back from inside, or has ended: nothing done through it counts, nor will."""


class TransactionControlRefused(HandlerError, PermissionError):
    """A handler may execute and fetch; transaction control, ATTACH, PRAGMA and our own tables are refused."""


class KeyConflict(CounterfoilError, ValueError):
    """The idempotency key is known with other arguments; nothing was run."""


# --- client


class StillPending(CounterfoilError):
    """The ticket has no outcome yet."""


class NotApplied(CounterfoilError):
    """The effect certainly did not happen: trying again, under the same key, is safe.

    A handler may raise it to say just that.  From a request, `evidence` says how it is known.
    """

    def __init__(self, message: str = "", evidence: object = None) -> None:
        super().__init__(message, evidence)
        self.evidence = evidence

    def __str__(self) -> str:
        return str(self.args[0])


class OutOfTurn(NotApplied):
    """A transactional handler was not run, because the work that it was to follow is not completed."""


class Indeterminate(CounterfoilError):
    """The effect may or may not have happened; it is never run again by itself.

    `evidence` says what is known, `idempotency_key` names the entry that `ledger.resolve` settles.
    """

    def __init__(self, message: str, evidence: object = None, idempotency_key: str | None = None) -> None:
        super().__init__(message, evidence, idempotency_key)
        self.evidence = evidence
        self.idempotency_key = idempotency_key

    def __str__(self) -> str:
        return str(self.args[0])


class ConnectionNotOpen(CounterfoilError, RuntimeError):
    """The connection was used before its `async with` block was entered."""


class RequestFailed(CounterfoilError):
    """The server answered the request with a JSON-RPC error; `code`, `message` and `data` are its own."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(code, message, data)
        self.code = code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"the server answered with error {self.code}"


class HandshakeFailed(CounterfoilError, ConnectionError):
    """No session could be opened; the cause says what came instead, and nothing else was sent."""


class SessionOver(NotApplied, ConnectionError):
    """The session is over, so nothing was sent: connect again.  `why` says what ended it."""

    def __init__(self, message: str, evidence: object = None, why: str = "") -> None:
        CounterfoilError.__init__(self, message, evidence, why)
        self.evidence = evidence
        self.why = why


class StreamLost(CounterfoilError):
    """A stream is not the one that was read before, and nothing of it was applied.

    `verdict` says why, with its evidence; `stream` is the name to give to `connection.accept` once the
    state behind it has been reconciled.
    """

    def __init__(self, message: str, stream: str, verdict: object) -> None:
        super().__init__(message, stream, verdict)
        self.stream = stream
        self.verdict = verdict

    def __str__(self) -> str:
        return str(self.args[0])


class DeliveryStopped(CounterfoilError):
    """A handler's event ended the delivery of its stream, as the policies say; nothing behind it is run.

    `report` says what became of the event, `stream` is the name to give to `connection.accept` when the
    stream is to go on behind it.
    """

    def __init__(self, message: str, stream: str, report: object) -> None:
        super().__init__(message, stream, report)
        self.stream = stream
        self.report = report

    def __str__(self) -> str:
        return str(self.args[0])


class RequestUnanswerable(CounterfoilError):
    """A handler of server requests refuses one; `code` and `message` go to the server."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class HttpFault(CounterfoilError, ConnectionError):
    """An HTTP exchange did not come to its end; `sent` says whether any of the request may have arrived."""

    def __init__(self, message: str, sent: bool) -> None:
        super().__init__(message, sent)
        self.sent = sent

    def __str__(self) -> str:
        return str(self.args[0])
