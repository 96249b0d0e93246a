"""The closed vocabularies of verdicts; each value is the token that travels in `Stream-Continuity`.

It must hold no behaviour.  The codec, the store, the decisions and the machines share it, so that one word
means one thing.
"""

from __future__ import annotations

from enum import StrEnum


class VerdictToken(StrEnum):
    """What a server says of a resume (`verdict=`), from harmless to worst."""

    RESUMED = "resumed"
    NEW = "new"
    UNVERIFIABLE = "unverifiable"
    GAP = "gap"
    REORIGINATED = "reoriginated"
    FORGED = "forged"


class Next(StrEnum):
    """What the reader should do with the stream now (`next=`)."""

    CONTINUE = "continue"
    RECONCILE = "reconcile"
    RETRY = "retry"
    STOP = "stop"
    DONE = "done"


class Executed(StrEnum):
    """Whether the effect of the call behind a lost answer happened (`executed=`)."""

    NO = "no"
    YES = "yes"
    UNKNOWN = "unknown"


class Why(StrEnum):
    """The reason of a verdict, of an end, or of an in-band error (`why=`)."""

    # A stream begins.
    FIRST = "first"  # never written to a connection, held since it began
    WANTED = "wanted"  # the reader asked for it anew (want=new)
    UNRESUMABLE = "unresumable"  # relayed without ids
    REVISION = "revision"  # the negotiated revision has no resumption

    # It goes on.
    HELD = "held"  # every event after the cursor is in the window
    ENDED = "ended"  # nothing was missed, and the stream is over
    CLAIM = "claim"  # epoch, position and digest of the server's claim are ours
    ECHO = "echo"  # the server repeated our cursor
    NEXT_EVENT = "next-event"  # same epoch, cursor + 1
    OVERLAP = "overlap"  # an event we knew came back: byte for byte, or with other bytes
    WINDOW = "window"  # same token, and the declared window contains the cursor

    # It does not, or nobody can tell.
    NO_CURSOR = "no-cursor"
    FOREIGN_ID = "foreign-id"
    MALFORMED = "malformed"
    MAC = "mac"
    VERSION = "version"
    KEY = "key"
    LIMIT = "limit"
    STORE = "store"
    UNKNOWN_STREAM = "unknown-stream"
    EPOCH = "epoch"
    AHEAD = "ahead"
    TRIMMED = "trimmed"
    DIVERGED = "diverged"

    # What a client sees for itself.
    SIGNALLED = "signalled"  # the server said so and gave no reason that we know
    RESET = "reset"  # `new` in answer to a cursor
    SESSION = "session"  # another session answered, or the session is over
    STREAM = "stream"  # an event of another stream
    TOKEN = "token"  # another token, for ids declared sparse
    ORDER = "order"  # not above the cursor
    JUMP = "jump"  # above cursor + 1
    NO_IDS = "no-ids"
    SCHEME = "scheme"  # ours after foreign ids, or the other way round
    NO_OVERLAP = "no-overlap"
    WAITING = "waiting"  # no evidence yet
    RETRY = "retry"  # the server asks to be asked again

    # One event, judged after the verdict.
    EMPTY_ID = "empty-id"
    NOT_JSON_RPC = "not-json-rpc"
    OTHER_BYTES = "other-bytes"  # a known id with other bytes
    BEHIND = "behind"  # the server has written more than arrived
    REPEATED = "repeated"  # received before
    UNPROVEN = "unproven"  # received before, and nothing proves that a second run is harmless
    NAME = "name"  # an `event:` name that is not ours to read

    # A reader's end.
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    SLOW = "slow"
    CLOSED = "closed"
    IDLE = "idle"  # nobody read or wrote for too long

    # A call's end without its answer.
    ADOPTED = "adopted"
    TOO_LARGE = "too-large"
    BUDGET = "budget"
    DEADLINE = "deadline"
    STATUS = "status"
    UNSENT = "unsent"

    # A row of the ledger, read before an effect may start.
    NO_ROW = "no-row"
    INTENDED = "intended"
    RELEASED = "released"
    AWAITING_INPUT = "awaiting-input"
    CANCELLING = "cancelling"
    SETTLED = "settled"
    NOT_APPLIED = "not-applied"
    EXPIRED = "expired"
    ATTEMPTS = "attempts"
    FINGERPRINT = "fingerprint"
    FENCE = "fence"
    ATTEMPT = "attempt"


class StreamKind(StrEnum):
    """What a stream serves: one POSTed request, or the standalone GET of a session."""

    CALL = "call"
    STANDALONE = "standalone"


class HandlerKind(StrEnum):
    """What a handler promises about a second run, declared when it is registered."""

    TRANSACTIONAL = "transactional"
    IDEMPOTENT = "idempotent"
    AT_MOST_ONCE = "at_most_once"


class OutcomeToken(StrEnum):
    """What is known of an effect that will not change by itself any more."""

    COMPLETED = "completed"
    FAILED = "failed"
    NOT_APPLIED = "not_applied"
    INDETERMINATE = "indeterminate"
