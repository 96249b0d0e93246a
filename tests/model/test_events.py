"""The facts about one event are closed, and the event's evidence is a value."""

from __future__ import annotations

import pickle

from counterfoil.model.events import EventEvidence, Identity, Scheme


def test_evidence_about_an_event_is_a_value() -> None:
    evidence = EventEvidence(scheme=Scheme.CF1, identity=Identity.NEXT)
    assert pickle.loads(pickle.dumps(evidence)) == evidence
    assert hash(evidence) == hash(EventEvidence(scheme=Scheme.CF1, identity=Identity.NEXT))
