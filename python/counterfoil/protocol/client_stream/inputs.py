"""What can happen to a client's stream, in the past tense.

The driver tells each of them as it happens, with the time; it must not leave one out or tell two as one.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class OpenRequested(msgspec.Struct, frozen=True):
    """The application wants the stream.

    For a call, the driver sends its request with the `Open` that follows.
    """


class HeadReceived(msgspec.Struct, frozen=True, kw_only=True):
    """A response head; header names in lower case."""

    status: int
    headers: Mapping[str, str]


class BytesReceived(msgspec.Struct, frozen=True):
    """The next piece of the body, cut anywhere."""

    chunk: bytes


class BodyEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The body is over; `clean` if the HTTP framing said so."""

    clean: bool


class ConnectionFailed(msgspec.Struct, frozen=True, kw_only=True):
    """No response head came; `sent` says whether any byte of the request may have left."""

    sent: bool


class TimePassed(msgspec.Struct, frozen=True):
    """The time of the last `WakeAt` has come."""


class EventsProcessed(msgspec.Struct, frozen=True, kw_only=True):
    """Every event at or below `through` is completed, finally failed or parked, durably."""

    through: int


class LossAccepted(msgspec.Struct, frozen=True):
    """The application takes the loss of a standalone stream, and wants it anew."""


class Abandoned(msgspec.Struct, frozen=True):
    """The application wants no more of the stream."""


Happened = (
    OpenRequested
    | HeadReceived
    | BytesReceived
    | BodyEnded
    | ConnectionFailed
    | TimePassed
    | EventsProcessed
    | LossAccepted
    | Abandoned
)
