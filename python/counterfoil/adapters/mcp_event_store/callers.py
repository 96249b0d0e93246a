"""Finds the SDK transport that called the store: its interface names no session, and streams need one.

Request ids repeat in every session, so a store that cannot tell sessions apart hands one session the answers
of another.  What is looked for is the public transport class, in the frames that await the store.
"""

from __future__ import annotations

from types import FrameType
from typing import NamedTuple

from mcp.server.streamable_http import StreamableHTTPServerTransport

#: Wrappers between a transport and the store (FastMCP has one) that are looked through.
_MAX_FRAMES = 8


class Caller(NamedTuple):
    """The transport, and whether it awaits the store itself or through a wrapper."""

    transport: StreamableHTTPServerTransport
    is_direct: bool


def find_caller(frame: FrameType | None) -> Caller | None:
    """Return who called the function that runs in `frame`; None if no transport did."""
    for depth in range(1, _MAX_FRAMES + 1):
        frame = frame.f_back if frame is not None else None
        if frame is None:
            return None
        # A method has `self` as its argument, a function inside of one as a free variable.
        owner = frame.f_locals.get("self")
        if isinstance(owner, StreamableHTTPServerTransport):
            return Caller(owner, depth == 1)
    return None
