"""What a client knows of one stream: where its events stand, and what must survive a restart.

They are values; the client's stream makes them, the ledger keeps them, the driver hands them around.
"""

from __future__ import annotations

import msgspec

from counterfoil.model.tokens import StreamKind


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where an event stands.

    For our own ids `stream`, `epoch` and `position` are the id's stream, epoch and sequence.  For foreign
    ids they are the reader's local handle, its local epoch and a local ordinal from 1, and `event_id` is
    the exact text (empty where the event had none).  `digest` is the id's own, or that of type and data.
    """

    stream: str
    epoch: str
    position: int
    event_id: str
    digest: str
    foreign: bool


class HeldEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event that we may be shown again; without data it is an echo, which only moves the cursor."""

    position: int
    event_id: str
    digest: str
    has_data: bool = True


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The request behind a call stream: its typed id, method, and what stands for it in the ledger."""

    request_id: int | str
    method: str = ""
    idempotency_key: str | None = None
    fingerprint: bytes = b""


class StreamRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a client keeps of a stream, durably.

    `held` begins at the event before the processed one, so that a restart can still prove an overlap; its
    last entry at or below `processed` is the cursor.  A new session drops its cursors without sending them.
    """

    server: str
    stream: str
    kind: StreamKind
    session_id: str | None
    principal: str | None
    revision: str
    epoch: str
    processed: int = 0
    held: tuple[HeldEvent, ...] = ()
    request: RequestRecord | None = None
