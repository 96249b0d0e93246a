"""The closed unions that decisions answer with.

A verdict carries its evidence, a reason and what to do next; it has no truth value, so `if verdict:` raises.
The store and the client share `ResumeVerdict`; whoever reads one ends with `assert_never`.
"""

from __future__ import annotations

from typing import NoReturn

import msgspec

from counterfoil.model.evidence import Evidence
from counterfoil.model.tokens import Executed, Next, Why


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What every verdict carries; `against` names the facts that spoke for another one."""

    evidence: Evidence
    why: Why
    next: Next
    against: tuple[Why, ...] = ()

    def __bool__(self) -> NoReturn:
        """Raise TypeError: a verdict has more than two values."""
        raise TypeError(f"{type(self).__name__} has no truth value: match on the verdict's class")


class New(Verdict, frozen=True, kw_only=True, tag="new"):
    """The stream begins here; nothing of it can have been missed, or the loss was accepted."""


class Resumed(Verdict, frozen=True, kw_only=True, tag="resumed"):
    """What follows continues the cursor: all missed events, in order.

    `after` is the sequence that the first event follows, None for foreign ids without numbers.  `missed` is
    how many events lie between the cursor and the end of the window, None where only the server could know.
    """

    after: int | None
    missed: int | None


class Gap(Verdict, frozen=True, kw_only=True, tag="gap"):
    """The sequences `first … last` can never be had from here; `request_ids` are the answers lost with them.

    With `next=continue` an answer that still comes is delivered, and nothing else.
    """

    first: int | None
    last: int | None
    request_ids: tuple[int | str, ...] = ()
    executed: Executed | None = None


class Reoriginated(Verdict, frozen=True, kw_only=True, tag="reoriginated"):
    """Another history under our cursor: nothing that follows is a continuation."""

    executed: Executed | None = None


class Forged(Verdict, frozen=True, kw_only=True, tag="forged"):
    """The cursor is not one that was issued to this reader, or the peer repeats itself: abort the session."""


class Unverifiable(Verdict, frozen=True, kw_only=True, tag="unverifiable"):
    """Nothing proves continuity, and nothing disproves it: treated as not continuous."""

    executed: Executed | None = None


class NotResumable(Verdict, frozen=True, kw_only=True, tag="not_resumable"):
    """The negotiated revision has no resumption; a lost call is a matter of the ledger."""


class Pending(Verdict, frozen=True, kw_only=True, tag="pending"):
    """No verdict yet: with `next=continue` read on, with `next=retry` ask again; the cursor is kept."""


#: A decided answer.  The server gives no other.
ResumeVerdict = New | Resumed | Gap | Reoriginated | Forged | Unverifiable | NotResumable
#: What the client's classifier returns.
ResumeJudgement = ResumeVerdict | Pending


class EventVerdict(Verdict, frozen=True, kw_only=True):
    """About one event after the stream's verdict; with `settles` it answers a request all the same."""

    settles: bool = False


class Fresh(EventVerdict, frozen=True, kw_only=True, tag="fresh"):
    """The next event of the stream: dispatch it."""


class Skipped(EventVerdict, frozen=True, kw_only=True, tag="skipped"):
    """Takes its place in the sequence and is not dispatched."""


class Duplicate(EventVerdict, frozen=True, kw_only=True, tag="duplicate"):
    """Received before, and the ledger answers for it: suppress."""


class Fault(EventVerdict, frozen=True, kw_only=True, tag="fault"):
    """The stream breaks its own rules here: close before dispatch.

    With `next=retry` ask again from our position, with `next=stop` give the stream up.
    """


EventJudgement = Fresh | Skipped | Duplicate | Fault
