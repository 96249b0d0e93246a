"""What another process offers is found oldest first, and forgotten when it is taken."""

from __future__ import annotations

from counterfoil.adapters.gateway.across.offers import Offers
from counterfoil.adapters.peers.owners import Owner, Place

ONE, TWO = Owner(Place(0, 1), 7), Owner(Place(0, 2), 7)


def test_offers_are_found_oldest_first_and_forgotten() -> None:
    offers = Offers()
    offers.note(b"i", ONE, within_s=60)
    offers.note(b"i", TWO, within_s=60)
    offers.note(b"j", TWO, within_s=-1)
    assert offers.find(b"i") == ONE
    assert offers.find(b"j") is None
    offers.forget(b"i", ONE)
    offers.forget(b"i", ONE)
    assert offers.find(b"i") == TWO
    offers.forget(b"i", TWO)
    assert offers.find(b"i") is None
    assert len(offers) == 0
