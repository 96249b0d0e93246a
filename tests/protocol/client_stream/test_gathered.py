"""Facts of one answer are noted as they are seen, and unreadable claims say nothing."""

from __future__ import annotations

from typing import Any

from counterfoil.model.evidence import Asked, Claim, Echo, First, Progress
from counterfoil.model.tokens import VerdictToken, Why
from counterfoil.protocol.client_stream.cf1_ids import FoundFirst
from counterfoil.protocol.client_stream.gathered import (
    CLAIMS_MAX,
    Gathered,
    read_claim_or_none,
    read_comment_or_none,
)
from counterfoil.protocol.client_stream.track import AskedWith
from counterfoil.protocol.continuity import ContinuityClaim


def asked_with(server: Any) -> AskedWith:
    return AskedWith(Asked.CF1, str(server.id(0)), server.id(0).cursor, 0)


def test_facts_become_evidence(server: Any) -> None:
    gathered = Gathered(asked_with(server), is_resumable=True)
    assert gathered.evidence(()).progress is Progress.OPEN
    gathered.note_line()
    gathered.note_claim(server.resumed(0))
    gathered.note_echo(str(server.id(0)))
    gathered.note_first(FoundFirst(First.NEXT, 1, server.epoch))
    gathered.note_first(FoundFirst(First.BEYOND, 9, server.epoch))
    evidence = gathered.evidence((7,))
    assert (evidence.progress, evidence.claim) == (Progress.READ, Claim.RESUMED_EQUAL)
    assert (evidence.echo, evidence.first, evidence.first_sequence) == (Echo.OURS, First.NEXT, 1)
    assert evidence.request_ids == (7,)


def test_no_more_claims_count_than_header_and_first_comment(server: Any) -> None:
    gathered = Gathered(asked_with(server), is_resumable=True)
    for _ in range(CLAIMS_MAX):
        gathered.note_claim(server.resumed(0))
    gathered.note_claim(ContinuityClaim(verdict=VerdictToken.FORGED, why=Why.MAC))
    assert gathered.evidence(()).claim is Claim.RESUMED_EQUAL


def test_claim_without_verdict_is_none(server: Any) -> None:
    gathered = Gathered(asked_with(server), is_resumable=True)
    gathered.note_claim(ContinuityClaim(epoch="e"))
    assert not gathered.has_claim


def test_unreadable_claims_say_nothing() -> None:
    for text in ("", "v=2, verdict=resumed", "v=1, verdict=maybe", "v=1, verdict=resumed, after=-1", "\x00"):
        assert read_claim_or_none(text) is None
        assert read_comment_or_none(f"stream-continuity {text}") is None
    assert read_comment_or_none(" keep-alive") is None


def test_waiting_is_not_undone_by_a_line(server: Any) -> None:
    gathered = Gathered(asked_with(server), is_resumable=True)
    gathered.progress = Progress.WAITED
    gathered.note_line()
    assert gathered.progress is Progress.WAITED
