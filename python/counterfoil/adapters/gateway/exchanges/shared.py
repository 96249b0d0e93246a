"""What the ways of answering share: the log, what is remembered of sessions, and the bounds of a gateway.

Made once by `answering.answering`; it holds parts, and does nothing itself.
"""

from __future__ import annotations

import msgspec

from counterfoil.adapters.gateway.across.across import Across
from counterfoil.adapters.gateway.adoption.front import Adoption
from counterfoil.adapters.gateway.exchanges.connections import Connections
from counterfoil.adapters.gateway.exchanges.exchange import Exchange
from counterfoil.adapters.gateway.operation.metrics import Metrics
from counterfoil.adapters.gateway.operation.verdict_log import VerdictLog
from counterfoil.adapters.gateway.sessions.sessions import SessionFacts, Sessions
from counterfoil.adapters.gateway.settings import GatewaySettings
from counterfoil.adapters.gateway.streams.sse_out import Pace
from counterfoil.limits import Limits
from counterfoil.stores.interface import ReplayLog


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one gateway with a replay log that more than one way of answering needs."""

    settings: GatewaySettings
    limits: Limits
    log: ReplayLog
    adoption: Adoption
    sessions: Sessions
    across: Across | None
    connections: Connections
    pace: Pace
    metrics: Metrics
    verdicts: VerdictLog

    def facts_of(self, exchange: Exchange) -> SessionFacts:
        """Return what is remembered of a session, or where there is none of a principal."""
        identity, session = exchange.identity, exchange.inbound.session
        if session is not None:
            return self.sessions.of(session)
        if identity.principal is None:
            return SessionFacts()
        return self.sessions.of(f"\0{identity.tenant}\0{identity.principal}")
