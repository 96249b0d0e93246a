"""What counts as the same origin: scheme, host and port, with the scheme's own port."""

from __future__ import annotations

import pytest
from counterfoil.adapters.client.origins import is_same_origin


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://a/mcp", "http://a:80/x", True),
        ("https://a/mcp", "https://A:443/", True),
        ("http://a/mcp", "https://a/mcp", False),
        ("http://a/mcp", "http://a:8080/mcp", False),
        ("http://a/mcp", "http://a.evil/mcp", False),
        ("http://a/mcp", "http://a@evil/mcp", False),
        ("http://a/mcp", "//evil/mcp", False),
        ("http://a/mcp", "http://a:99999/mcp", False),
    ],
)
def test_same_origin(one: str, other: str, same: bool) -> None:
    assert is_same_origin(one, other) is same
