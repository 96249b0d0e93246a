"""Every bound that Counterfoil keeps, in one frozen value.

A bound has a name, a default and a typed error that names it (:class:`counterfoil.LimitExceeded`); passing
one never loses what was accepted before.
"""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What may be held; units are last in each name.

    Raises ``ValueError`` for a bound below 1.
    """

    # --- SSE parser ---
    line_bytes: int = 16 << 20
    """One line of an event stream without its line end; comments and ignored fields count too."""
    event_bytes: int = 16 << 20
    """One event from its first field to the end of its last line; names, line ends and comments count."""
    event_lines: int = 1 << 16
    """Lines of one event, counted likewise."""

    # --- client ---
    event_id_bytes: int = 1024
    """The longest event ID taken from a server; a longer one ends the connection, and the cursor stays."""

    # --- replay store ---
    window_events: int = 1024
    """Events that the window of one stream keeps."""
    window_bytes: int = 1 << 20
    """Stored bytes that it keeps; one event larger than that is kept alone while the total allows."""
    window_age_s: float = 900
    """Age at which an event leaves it, never earlier and a second later at most."""
    total_bytes: int = 256 << 20
    """Bytes charged to all streams together; at it new streams are refused, and an append trims its own."""
    reserve_bytes: int = 8 << 10
    """What each live stream is sure of, whatever the others do; at least 2 KiB."""
    principal_share: int = 8
    """A principal holds at most so many times what is free of `total_bytes`: alone eight ninths of it.  Then
    its new streams are refused and its appends trim their own, so that there is room for the others.  Callers
    without tenant and principal are not told apart, and share everything."""
    streams: int = 1 << 16
    """Streams that are live or in their grace."""
    session_streams: int = 32
    """Live streams of one session; a principal's calls without sessions may have 32 times as many."""
    sessions: int = 20_000
    """Sessions not known to have ended; at the bound, who has most of those without streams loses one."""
    grace_s: float = 120
    """How long an ended stream, its answer included, can still be read."""
    tombstones: int = 1 << 16
    """Ended streams of which only their position is kept."""
    tombstone_age_s: float = 3600
    """How long that is kept."""
    stream_idle_s: float = 6 * 3600
    """How long a live stream may be without an append and without a reader."""
    session_idle_s: float = 24 * 3600
    """How long a session without streams is remembered, and one that has ended."""
    ended_sessions: int = 1 << 16
    """Sessions that are remembered to have ended."""

    # --- client ---
    inbox_bytes: int = 64 << 20
    """Bytes of events that wait for the application on one connection; at it no more is read."""

    # --- ledger ---
    attempts: int = 3
    """Runs of a handler that fails, or of one that ends the process, before its event is failed."""
    attempt_backoff_ms: int = 100
    """The first wait between two runs of a handler that fails; it doubles."""
    dispatch_queue: int = 1_024
    """Events of one stream that wait for the one before them."""
    handler_ms: int = 5_000
    """How long a transactional handler may run; SQL is interrupted, Python cannot be."""
    ledger_busy_ms: int = 5_000
    """How long a write waits for another connection's lock."""
    ledger_group: int = 256
    """Writes that share one durable commit."""
    ledger_open_rows: int = 100_000
    """Entries without a final outcome; they never expire, so new intents are refused beyond."""
    ledger_queue: int = 8_192
    """Writes that wait for their commit."""
    ledger_row_age_s: int = 86_400
    """How long an outcome is kept whole."""
    ledger_tombstone_age_s: int = 30 * 86_400
    """How long a key whose outcome is forgotten stays known; after it the key is new.  So long a doubt about
    a call without a key is listed."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"Limits.{name} is {value}: a bound is at least 1")
