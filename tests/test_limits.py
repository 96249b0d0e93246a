"""Every bound has a default, a name and a floor."""

from __future__ import annotations

import pytest
from counterfoil import Limits


def test_every_bound_has_a_default_and_is_frozen() -> None:
    limits = Limits()
    assert (limits.line_bytes, limits.event_bytes) == (16 << 20, 16 << 20)
    with pytest.raises(AttributeError):
        limits.line_bytes = 1  # type: ignore[misc]


@pytest.mark.parametrize("name", Limits.__struct_fields__)
def test_a_bound_below_one_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=rf"Limits\.{name} is 0"):
        Limits(**{name: 0})
