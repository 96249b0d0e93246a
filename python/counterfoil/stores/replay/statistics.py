"""The counters of a replay store, as one frozen value; no label in it is chosen by a client."""

from __future__ import annotations

import msgspec


class ReplayStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What a store holds now, and what it has done since it was made."""

    live_streams: int
    ended_streams: int
    tombstones: int
    sessions: int
    ended_sessions: int
    readers: int
    charged_bytes: int
    """Bytes charged against `total_bytes`, reserves included."""
    window_events: int
    """Events that can be replayed; counted when asked for."""
    window_bytes: int
    """Bytes of memory that windows hold."""
    held_bytes: int
    """Bytes that are held from the allocator for windows, spare ones included."""
    lookups: int
    """Streams that were looked up for a resume."""
    appended: int
    trimmed_events: int
    trimmed_bytes: int
    trimmed_age: int
    trimmed_budget: int
    trimmed_at_birth: int
    too_large: int
    refused: int
    forgotten_sessions: int
    """Sessions without streams that were forgotten at the bound, so that others could begin."""
    taken_over: int
    too_slow: int
    idle_ends: int
    rows: tuple[int, ...]
    """Resumes by row of the decision table; index 0 is unused."""
