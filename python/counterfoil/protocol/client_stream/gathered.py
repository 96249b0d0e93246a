"""Gather what one answer shows, until it is judged.

It notes facts and concludes nothing; `counterfoil.decisions.resume` judges.
"""

from __future__ import annotations

from counterfoil.decisions.claims import Claimed, count_claims
from counterfoil.errors import ContinuityError
from counterfoil.model.evidence import (
    Claim,
    ClaimDetails,
    Echo,
    Progress,
    ResumeEvidence,
    Revision,
    Session,
    Token,
    Window,
)
from counterfoil.model.tokens import Why
from counterfoil.protocol.client_stream.cf1_ids import FoundFirst, compare_echo
from counterfoil.protocol.client_stream.track import AskedWith
from counterfoil.protocol.continuity import (
    ConnectionComment,
    ContinuityClaim,
    read_claim,
    read_comment,
)

#: Header and first comment; a server that makes more claims is not believed more.
CLAIMS_MAX = 2


def read_claim_or_none(text: str) -> ContinuityClaim | None:
    """Return a claim; None for one that this release cannot read, which then says nothing."""
    try:
        return read_claim(text)
    except ContinuityError:
        return None


def read_comment_or_none(text: str) -> ContinuityClaim | ConnectionComment | None:
    """Return what a comment of ours says; None for any other, and for one that cannot be read."""
    try:
        return read_comment(text)
    except ContinuityError:
        return None


class Gathered:
    """The facts of one answer, relative to what was asked with."""

    def __init__(self, asked: AskedWith, *, is_resumable: bool) -> None:
        self.asked = asked
        self.session = Session.SAME
        self.token = Token.ABSENT
        self.window = Window.ABSENT
        self.progress = Progress.OPEN
        self.has_waited = False
        self.echo_id: str | None = None
        self._revision = Revision.RESUMABLE if is_resumable else Revision.NOT_RESUMABLE
        self._claims: list[Claimed] = []
        self._echo = Echo.NONE
        self._first: FoundFirst | None = None

    @property
    def has_claim(self) -> bool:
        """Whether the server speaks `Stream-Continuity` on this connection."""
        return bool(self._claims)

    @property
    def has_first(self) -> bool:
        """Whether an event with data was seen."""
        return self._first is not None

    def note_claim(self, claim: ContinuityClaim) -> None:
        """Note a claim that gives a verdict."""
        if claim.verdict is None or len(self._claims) >= CLAIMS_MAX:
            return
        details = ClaimDetails(
            verdict=claim.verdict,
            why=claim.why or Why.SIGNALLED,
            next=claim.next,
            executed=claim.executed,
            after=claim.after,
            first=claim.first,
            last=claim.last,
        )
        self._claims.append(Claimed(details, claim.epoch, claim.digest))

    def note_line(self) -> None:
        """Note that the first line of the body is there."""
        if self.progress is Progress.OPEN:
            self.progress = Progress.READ

    def note_waited(self) -> None:
        """Note that `judge_within` has passed.

        A header that says *resumed* still waits for the first line of the body: a comment there may say
        worse.
        """
        self.has_waited = True
        is_claimed = self.evidence(()).claim is Claim.RESUMED_EQUAL
        if self.progress is not Progress.OPEN or not is_claimed:
            self.progress = Progress.WAITED

    def note_end(self) -> None:
        """Note that nothing more will come."""
        self.has_waited = True
        self.progress = Progress.WAITED

    def note_echo(self, event_id: str) -> None:
        """Note an event with an id and empty data."""
        self.echo_id = event_id
        if self.asked.event_id:
            cursor = self.asked.cursor
            self._echo = Echo.FOREIGN if cursor is None else compare_echo(event_id, cursor)

    def note_first(self, found: FoundFirst) -> None:
        """Note the first event with data."""
        if self._first is None:
            self._first = found

    @property
    def base(self) -> int | None:
        """The sequence that the server says its first event follows."""
        return next((claim.details.after for claim in self._claims if claim.details.after is not None), None)

    def evidence(self, request_ids: tuple[int | str, ...]) -> ResumeEvidence:
        """Return the facts as the classifier takes them."""
        found = self._first or FoundFirst.nothing()
        counted = count_claims(self._claims, self.asked.cursor, event_epoch=found.epoch)
        return ResumeEvidence(
            asked=self.asked.how,
            progress=self.progress,
            revision=self._revision,
            session=self.session,
            claim=counted.claim,
            echo=self._echo,
            first=found.fact,
            token=self.token,
            window=self.window,
            details=counted.details,
            asked_sequence=self.asked.number,
            first_sequence=found.sequence,
            request_ids=request_ids,
            discounted=counted.discounted,
        )
