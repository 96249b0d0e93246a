"""What a user chooses for one connection; every default fails closed.

It holds no state and opens nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from counterfoil.adapters.client.carrier import StreamPolicies
from counterfoil.adapters.client.dispatching import Confirm
from counterfoil.adapters.client.replies import Answerer
from counterfoil.adapters.dispatcher import Policy
from counterfoil.decisions.reconnect import ReconnectLimits
from counterfoil.limits import Limits
from counterfoil.model.verdicts import ResumeVerdict
from counterfoil.protocol.client_stream.foreign_ids import Declared
from counterfoil.protocol.client_stream.settings import OnLostStream, OnUnverifiable
from counterfoil.protocol.revisions import LAST_WITH_SESSIONS

#: Told of every verdict, with the name of its stream.
VerdictListener = Callable[[str, ResumeVerdict], None]


class ConnectSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `connect`, in one value.

    `revision` is the MCP revision to offer, or with `session_id` the one that the session speaks.
    `answer` has a function for each kind of request that the server may make.  Times are in seconds.
    """

    revision: str = LAST_WITH_SESSIONS.revision
    session_id: str | None = None
    principal: str | None = None
    client_name: str = "counterfoil"
    client_version: str = "0"
    capabilities: Mapping[str, Any] | None = None
    answer: Mapping[str, Answerer] = {}
    on_verdict: VerdictListener | None = None
    on_unverifiable: Literal["end_stream", "at_most_once"] = "end_stream"
    on_lost_stream: Literal["ask", "accept"] = "ask"
    on_failed: Policy = "end_stream"
    on_indeterminate: Policy = "end_stream"
    confirm: Confirm | None = None
    judge_within_s: float = 5.0
    handshake_s: float = 30.0
    declared: Declared = Declared()
    reconnect: ReconnectLimits = ReconnectLimits()
    limits: Limits = Limits()
    standalone: bool = True
    end_session: bool | None = None

    @property
    def policies(self) -> StreamPolicies:
        """What the streams need of it."""
        return StreamPolicies(
            judge_within_s=self.judge_within_s,
            declared=self.declared,
            reconnect=self.reconnect,
            limits=self.limits,
            on_unverifiable=OnUnverifiable(self.on_unverifiable),
            on_lost_stream=OnLostStream(self.on_lost_stream),
        )

    def declared_capabilities(self) -> dict[str, Any]:
        """Return what the client declares: as given, or what it has functions for."""
        if self.capabilities is not None:
            return dict(self.capabilities)
        found = {_CAPABILITIES[method] for method in self.answer if method in _CAPABILITIES}
        return {name: {} for name in sorted(found)}


_CAPABILITIES = {
    "elicitation/create": "elicitation",
    "roots/list": "roots",
    "sampling/createMessage": "sampling",
}
