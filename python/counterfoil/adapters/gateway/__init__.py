"""The gateway: an ASGI application in front of any MCP server; `Gateway` is loaded when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from counterfoil.adapters.gateway.application import Gateway as Gateway

__all__ = ["Gateway"]


def __getattr__(name: str) -> object:
    """Load the application late: parts of this package are imported by what it is made of."""
    if name == "Gateway":
        from counterfoil.adapters.gateway.application import Gateway

        return Gateway
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
