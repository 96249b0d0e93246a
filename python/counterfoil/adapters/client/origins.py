"""Says whether two URLs have the same origin; credentials go to no other."""

from __future__ import annotations

from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port.  Raises ValueError for a URL without a readable port."""
    parts = urlsplit(url)
    return (
        parts.scheme.lower(),
        (parts.hostname or "").lower(),
        parts.port or _PORTS.get(parts.scheme.lower()),
    )


def is_same_origin(one: str, other: str) -> bool:
    """Return whether both have scheme, host and port in common; what cannot be read is another origin."""
    try:
        return origin_of(one) == origin_of(other)
    except ValueError:
        return False
