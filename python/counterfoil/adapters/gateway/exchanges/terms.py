"""Turns settings, and what a request says of itself, into the terms on which a call and its POST run."""

from __future__ import annotations

from contextlib import suppress

from counterfoil.adapters.gateway.arrival.inbound import Inbound
from counterfoil.adapters.gateway.calls.calls import CallSettings
from counterfoil.adapters.gateway.calls.posts import PostTerms
from counterfoil.adapters.gateway.exchanges.exchange import Exchange
from counterfoil.adapters.gateway.exchanges.shared import Shared
from counterfoil.errors import ContinuityError
from counterfoil.protocol.continuity import ContinuityRequest, read_request
from counterfoil.protocol.revisions import Capabilities


def call_settings(shared: Shared, knows: Capabilities) -> CallSettings:
    """Return how a call of this revision runs."""
    settings, metrics = shared.settings, shared.metrics
    return CallSettings(
        answer_bytes=settings.answer_bytes,
        error_bytes=settings.error_bytes,
        sse=shared.limits,
        revision=knows.revision,
        on_relay=metrics.note_relay,
        on_indeterminate=metrics.note_indeterminate,
        on_limit=metrics.note_limit,
        lost_s=settings.beat_s * 2 / 3,
    )


def post_terms(shared: Shared, exchange: Exchange, knows: Capabilities, *, opens_early: bool) -> PostTerms:
    """Return how the POST of a call is answered."""
    settings, inbound = shared.settings, exchange.inbound
    return PostTerms(
        knows=knows,
        is_aware=read_asked(inbound) is not None,
        opens_early=opens_early,
        prime_after_s=settings.prime_after_ms / 1000,
        retry_ms=settings.retry_ms,
        window=shared.limits.window_events,
        cors=shared.facts_of(exchange).cors.get(inbound.origin or "", ()),
    )


def read_asked(inbound: Inbound) -> ContinuityRequest | None:
    """What an aware client asks for; a text that nobody can read makes no client aware."""
    if inbound.continuity is None:
        return None
    with suppress(ContinuityError):
        return read_request(inbound.continuity)
    return None
