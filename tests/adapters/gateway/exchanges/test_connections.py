"""At the bound the next connection is refused or put off, and one that ends makes room whatever ended it."""

from __future__ import annotations

import pytest
from counterfoil.adapters.gateway.exchanges.connections import Connections
from counterfoil.errors import RequestOverLimit


def test_at_the_bound_a_call_is_refused_and_a_reader_that_is_put_off_is_counted() -> None:
    told: list[str] = []
    connections = Connections(1, told.append)
    with connections.counted():
        with pytest.raises(RequestOverLimit) as refused:
            connections.check()
        assert (refused.value.status, refused.value.field) == (503, "reads_at_once")
        assert told == []  # whoever answers the refusal counts it
        assert connections.is_full()
        assert told == ["reads_at_once"]
    assert not connections.is_full()
    connections.check()


def test_a_connection_that_fails_makes_room_too() -> None:
    connections = Connections(1, lambda limit: None)
    with pytest.raises(OSError, match="gone"), connections.counted():
        raise OSError("gone")
    connections.check()
