"""What a client's stream is told once, before it is opened.

It holds no state; whoever opens the stream fills it in.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from counterfoil.decisions.reconnect import ReconnectLimits
from counterfoil.limits import Limits
from counterfoil.model.stream import RequestRecord
from counterfoil.model.tokens import StreamKind
from counterfoil.protocol.client_stream.foreign_ids import Declared
from counterfoil.protocol.revisions import Capabilities, capabilities_of


class OnUnverifiable(StrEnum):
    """What becomes of events whose stream is unverifiable."""

    END_STREAM = "end_stream"  # fail closed: none is applied
    AT_MOST_ONCE = "at_most_once"  # each is delivered with a flag, for the application to confirm


class OnLostStream(StrEnum):
    """What becomes of a standalone stream that is not continuous."""

    ASK = "ask"  # it waits for `LossAccepted`
    ACCEPT = "accept"  # it starts anew at once


class StreamSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One stream of one server.

    `stream` is the reader's own handle for it.  `deadline` is a time on the caller's clock, after which the
    request is settled; a standalone stream has none.  `judge_within` is how long (seconds) a verdict may
    stay open before the application is told.  `payload_key` finds an idempotency key in the data of an
    event.
    """

    server: str
    stream: str
    kind: StreamKind
    revision: str
    session_id: str | None = None
    principal: str | None = None
    request: RequestRecord | None = None
    deadline: float | None = None
    judge_within: float = 5.0
    declared: Declared = Declared()
    reconnect: ReconnectLimits = ReconnectLimits()
    limits: Limits = Limits()
    on_unverifiable: OnUnverifiable = OnUnverifiable.END_STREAM
    on_lost_stream: OnLostStream = OnLostStream.ASK
    unprocessed_max: int = 1024
    payload_key: Callable[[bytes], str | None] | None = None

    @property
    def capabilities(self) -> Capabilities | None:
        """What the negotiated revision can do; None for one that is not known."""
        return capabilities_of(self.revision)

    @property
    def is_resumable(self) -> bool:
        """Whether a broken stream can be asked for again."""
        known = self.capabilities
        return known is not None and known.has_resumption
