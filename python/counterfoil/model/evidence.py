"""The facts that decisions are given, each one a member of a closed enum so that every table is finite.

Evidence holds no conclusion and no secret.  Those who see the answer (the client's stream, the store) fill
it in; the decision functions read it, and the verdict carries it.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from counterfoil.model.tokens import Executed, Next, VerdictToken, Why


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a verdict rests on; each decision has its own kind."""


class StoreEvidence(Evidence, frozen=True, kw_only=True):
    """What the authority of a stream saw when it was asked to resume.

    `row` is the row of the server's table that matched.  `asked` is the sequence of the cursor; `first` and
    `last` bound the replay window.  Each is None where the row discloses nothing.
    """

    row: int
    asked: int | None = None
    first: int | None = None
    last: int | None = None


class Asked(StrEnum):
    """What the reader asked with."""

    FIRST = "first"  # opens the stream; nothing of it was ever read
    ACCEPTED = "accepted"  # the application accepted a new base (want=new)
    NO_CURSOR = "no-cursor"  # read before, and has no cursor
    CF1 = "cf1"
    OPAQUE = "opaque"  # foreign, no arithmetic
    DENSE = "dense"  # foreign, declared to add 1
    SPARSE = "sparse"  # foreign, declared to rise, with a token and a window beside the ids


class Revision(StrEnum):
    """Whether the negotiated revision has resumption."""

    RESUMABLE = "resumable"
    NOT_RESUMABLE = "not-resumable"


class Session(StrEnum):
    """Whether the answer came from the session that was asked."""

    SAME = "same"
    REPLACED = "replaced"


class Claim(StrEnum):
    """A server's claim, reduced to what it says and whose epoch it names, from nothing to worst.

    `…_OURS` names the epoch of our cursor, `…_OTHER` another one, the plain member names none.
    """

    ABSENT = "absent"
    RESUMED = "resumed"
    RESUMED_EQUAL = "resumed-equal"  # epoch, position and digest are ours
    RESUMED_OURS = "resumed-ours"  # our epoch, another position, or no digest
    RESUMED_OTHER = "resumed-other"
    RESUMED_DIVERGED = "resumed-diverged"  # our epoch and position, another digest
    NEW_OTHER = "new-other"
    NEW_OURS = "new-ours"
    NEW = "new"
    RETRY = "retry"
    UNVERIFIABLE_OTHER = "unverifiable-other"
    UNVERIFIABLE_OURS = "unverifiable-ours"
    UNVERIFIABLE = "unverifiable"
    GAP_OTHER = "gap-other"
    GAP_OURS = "gap-ours"
    GAP = "gap"
    REORIGINATED_OTHER = "reoriginated-other"
    REORIGINATED_OURS = "reoriginated-ours"
    REORIGINATED = "reoriginated"
    FORGED_OTHER = "forged-other"
    FORGED_OURS = "forged-ours"
    FORGED = "forged"


class Echo(StrEnum):
    """An event with an id and empty data, compared decoded with the cursor asked for."""

    NONE = "none"
    OURS = "ours"
    OTHER_POSITION = "other-position"
    OTHER_EPOCH = "other-epoch"
    FOREIGN = "foreign"  # an id that is not ours to read


class First(StrEnum):
    """The first event with data, against the cursor asked for."""

    NONE = "none"
    NO_ID = "no-id"
    OTHER_SCHEME = "other-scheme"
    # cf1 ids
    OTHER_STREAM = "other-stream"
    OTHER_EPOCH = "other-epoch"
    SAME = "same"
    DIVERGED = "diverged"  # same position, another digest
    # ids with an order
    BELOW = "below"
    NEXT = "next"  # nothing that we do not hold lies between
    BEYOND = "beyond"
    # foreign ids
    KNOWN = "known"  # byte for byte one that we hold, and not to be guessed
    KNOWN_PLAIN = "known-plain"  # the same, but a re-run could make it again, or it is not the one asked for
    KNOWN_DIFFERENT = "known-different"  # an id that we hold, with other bytes
    UNKNOWN = "unknown"


class Token(StrEnum):
    """The token beside ids declared sparse."""

    ABSENT = "absent"
    SAME = "same"
    OTHER = "other"


class Window(StrEnum):
    """The replay window declared beside ids declared sparse: does it contain the cursor?"""

    ABSENT = "absent"
    CONTAINS = "contains"
    EXCLUDES = "excludes"


class Progress(StrEnum):
    """How far the answer has come."""

    OPEN = "open"  # the first line of the body, which may be a claim, is not there yet
    READ = "read"
    WAITED = "waited"  # `judge_within` has passed


class ClaimDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What the counted claim says besides its verdict; it fills verdicts in and decides none."""

    verdict: VerdictToken
    why: Why = Why.SIGNALLED
    next: Next | None = None
    executed: Executed | None = None
    after: int | None = None
    first: int | None = None
    last: int | None = None


class ResumeEvidence(Evidence, frozen=True, kw_only=True):
    """What a client knows when it judges an answer.

    The first block are the facts that decide; the second fills in the verdict.  `asked_sequence` and
    `first_sequence` are sequences of the stream, `request_ids` the requests that wait for an answer on it,
    and `discounted` the claims that did not count.
    """

    asked: Asked
    progress: Progress = Progress.READ
    revision: Revision = Revision.RESUMABLE
    session: Session = Session.SAME
    claim: Claim = Claim.ABSENT
    echo: Echo = Echo.NONE
    first: First = First.NONE
    token: Token = Token.ABSENT
    window: Window = Window.ABSENT

    details: ClaimDetails | None = None
    asked_sequence: int | None = None
    first_sequence: int | None = None
    request_ids: tuple[int | str, ...] = ()
    discounted: tuple[Claim, ...] = ()
