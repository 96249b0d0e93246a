"""What an HTTP status means for a stream when no claim comes with it.

No status is evidence of continuity; a claim on any status is judged instead and never reaches this table.
"""

from __future__ import annotations

from enum import StrEnum


class Meaning(StrEnum):
    """What the stream does on a status."""

    ACCEPTED = "accepted"
    SESSION_OVER = "session-over"
    STREAM_OVER = "stream-over"
    KEEP = "keep"  # ask again from the same position
    FAILURE = "failure"  # ask again, but not for the same overlap


_SESSION_OVER = frozenset({404})
_STREAM_OVER = frozenset({401, 403, 405})
_KEEP = frozenset({429, 502, 503, 504})
#: A refusal before any answer: the request was certainly not executed.
_NOT_APPLIED = frozenset({400, 401, 403, 404, 405, 406, 413, 415, 429})


def meaning_of(status: int) -> Meaning:
    """Return what a status without a claim means for a GET."""
    if 200 <= status < 300:
        return Meaning.ACCEPTED
    if status in _SESSION_OVER:
        return Meaning.SESSION_OVER
    if status in _STREAM_OVER:
        return Meaning.STREAM_OVER
    return Meaning.KEEP if status in _KEEP else Meaning.FAILURE


def is_not_applied(status: int, *, has_retry_after: bool) -> bool:
    """Return whether a refusal of the request itself proves that it was not executed."""
    return status in _NOT_APPLIED or (status == 503 and has_retry_after)
