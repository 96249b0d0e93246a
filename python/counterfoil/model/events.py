"""Facts about one event after the stream's verdict, each a member of a closed enum.

They are values only: the client's stream fills them in, `counterfoil.decisions.event_check` judges them.
"""

from __future__ import annotations

from enum import StrEnum

from counterfoil.model.evidence import Evidence
from counterfoil.model.tokens import Why


class Scheme(StrEnum):
    """Whose ids the stream carries."""

    NONE = "none"
    CF1 = "cf1"
    FOREIGN = "foreign"


class Identity(StrEnum):
    """What an event's own id says, against the event before it."""

    ABSENT = "absent"
    EMPTY = "empty"
    OTHER_SCHEME = "other-scheme"
    OTHER_STREAM = "other-stream"
    OTHER_EPOCH = "other-epoch"
    NOT_ABOVE = "not-above"
    NEXT = "next"
    JUMP = "jump"
    DIFFERENT = "different"  # a known id with other bytes, or a known position with another digest


class Seen(StrEnum):
    """Whether these bytes came before, and who answers for them."""

    NEVER = "never"
    ANSWERED = "answered"  # the ledger has it, or a run of this process does
    UNDONE = "undone"  # received before, and the ledger does not have it
    UNPROVEN = "unproven"  # received before, and neither atomicity nor idempotency is provable


class Body(StrEnum):
    """What the data is."""

    JSON_RPC = "json-rpc"
    EMPTY_OBJECT = "empty-object"  # `{}`: some servers replay their priming row like this
    OTHER = "other"


class Name(StrEnum):
    """Whether the `event:` field is the default."""

    MESSAGE = "message"
    OTHER = "other"


class Mode(StrEnum):
    """What the stream is read for."""

    ALL = "all"
    RESPONSE_ONLY = "response-only"


class Keyed(StrEnum):
    """Whether the application found an idempotency key in the payload."""

    NO = "no"
    YES = "yes"


class EventEvidence(Evidence, frozen=True, kw_only=True):
    """What is known of one event with data; `settles` says that it answers an outstanding request.

    `stream_why` is the reason of the verdict that made the stream response-only.
    """

    scheme: Scheme
    identity: Identity
    seen: Seen = Seen.NEVER
    body: Body = Body.JSON_RPC
    name: Name = Name.MESSAGE
    mode: Mode = Mode.ALL
    keyed: Keyed = Keyed.NO
    settles: bool = False
    stream_why: Why = Why.SIGNALLED
