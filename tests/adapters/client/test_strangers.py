"""An event that another stream of the session had is told by its random id; counters tell nothing."""

from __future__ import annotations

from counterfoil.adapters.client.strangers import SEEN_MAX, Strangers
from counterfoil.model.stream import Place

RANDOM = "0b8e7f0c-6f0d-4a51-9d55-0a1f3a0a7c11"


def place(event_id: str, *, digest: str = "d", foreign: bool = True) -> Place:
    return Place(stream="x", epoch="e", position=1, event_id=event_id, digest=digest, foreign=foreign)


def test_the_first_stream_keeps_an_event_and_every_other_one_had_it() -> None:
    strangers = Strangers()
    assert [strangers.had(name, place(RANDOM)) for name in ("a", "b", "a", "c")] == [False, True, False, True]


def test_other_bytes_counters_and_ids_of_ours_are_no_strangers() -> None:
    strangers = Strangers()
    for each in (place(RANDOM), place("7"), place(RANDOM, foreign=False)):
        strangers.had("a", each)
    assert not strangers.had("b", place(RANDOM, digest="other"))
    assert not strangers.had("b", place("7"))
    assert not strangers.had("b", place(RANDOM, foreign=False))


def test_what_is_remembered_is_bounded() -> None:
    strangers = Strangers()
    for number in range(SEEN_MAX + 1):
        strangers.had("a", place(f"{RANDOM}-{number}"))
    assert not strangers.had("b", place(f"{RANDOM}-0"))
    assert strangers.had("b", place(f"{RANDOM}-{SEEN_MAX}"))
