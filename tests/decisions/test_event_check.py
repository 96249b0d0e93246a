"""Every event after the verdict is the next one, a known one, or a fault; the whole table is compared."""

from __future__ import annotations

from typing import Any

import pytest
from counterfoil.decisions.event_check import check_event
from counterfoil.model.events import Body, EventEvidence, Identity, Keyed, Mode, Name, Scheme, Seen
from counterfoil.model.tokens import Next, Why
from counterfoil.model.verdicts import Duplicate, Fault, Fresh, Skipped

FIELDS = {
    "scheme": Scheme,
    "identity": Identity,
    "seen": Seen,
    "body": Body,
    "name": Name,
    "mode": Mode,
    "keyed": Keyed,
}
#: What the cf1 grammar alone can tell.
ONLY_CF1 = {Identity.OTHER_STREAM, Identity.OTHER_EPOCH}


def possible(facts: dict[str, Any]) -> bool:
    return facts["scheme"] is Scheme.CF1 or facts["identity"] not in ONLY_CF1


def test_whole_table_is_as_specified(table: Any, every: Any) -> None:
    specification = table("dispatch/stream_event.toml")
    for facts in filter(possible, every(**FIELDS)):
        for settles in (False, True):
            verdict = check_event(EventEvidence(**facts, settles=settles, stream_why=Why.TRIMMED))
            row = specification.first_match(facts)
            assert (type(verdict).__name__, verdict.why) == (row["verdict"], row["why"]), (facts, row["name"])
            assert verdict.settles is settles
    assert specification.used == {row["name"] for row in specification.rows}


def test_on_our_streams_only_the_next_event_is_dispatched(every: Any) -> None:
    for facts in filter(possible, every(**FIELDS)):
        verdict = check_event(EventEvidence(**facts))
        if facts["scheme"] is Scheme.CF1 and facts["mode"] is Mode.ALL and isinstance(verdict, Fresh):
            assert facts["identity"] is Identity.NEXT


def test_a_response_settles_its_request_under_a_fault() -> None:
    verdict = check_event(EventEvidence(scheme=Scheme.CF1, identity=Identity.JUMP, settles=True))
    assert isinstance(verdict, Fault)
    assert verdict.settles
    assert verdict.next is Next.RETRY


def test_first_unprovable_duplicate_fails_closed() -> None:
    """Card B: atomicity unproven and handlers not idempotent."""
    verdict = check_event(EventEvidence(scheme=Scheme.CF1, identity=Identity.NEXT, seen=Seen.UNPROVEN))
    assert isinstance(verdict, Fault)
    assert verdict.next is Next.STOP


def test_event_received_but_never_begun_is_dispatched_after_all() -> None:
    verdict = check_event(EventEvidence(scheme=Scheme.CF1, identity=Identity.NEXT, seen=Seen.UNDONE))
    assert isinstance(verdict, Fresh)


def test_overlap_that_comes_back_is_suppressed() -> None:
    verdict = check_event(EventEvidence(scheme=Scheme.FOREIGN, identity=Identity.NEXT, seen=Seen.ANSWERED))
    assert isinstance(verdict, Duplicate)


@pytest.mark.parametrize("scheme", Scheme)
def test_unknown_event_name_takes_its_place_and_is_not_dispatched(scheme: Scheme) -> None:
    verdict = check_event(
        EventEvidence(scheme=scheme, identity=Identity.NEXT, name=Name.OTHER, body=Body.OTHER)
    )
    assert isinstance(verdict, Skipped)
    assert verdict.why is Why.NAME
