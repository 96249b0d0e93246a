"""Whose a request is: its session's, its principal's, or that of all whom nothing tells apart."""

from __future__ import annotations

from typing import Any, cast

import pytest
from counterfoil.adapters.gateway.arrival.inbound import read_inbound
from counterfoil.adapters.gateway.arrival.scopes import ANONYMOUS, Identity
from counterfoil.adapters.gateway.exchanges.exchange import Exchange
from counterfoil.adapters.gateway.sessions.principals import Principals
from counterfoil.adapters.gateway.wire.upstream_port import Upstream, UpstreamRequest
from counterfoil.errors import RequestOverLimit
from counterfoil.native import Scope
from counterfoil.protocol.revisions import capabilities_of


def exchange_of(identity: Identity, session: str | None) -> Exchange:
    """A request that is never sent: nothing here asks its upstream or its client."""
    fields = [(b"host", b"localhost")]
    if session is not None:
        fields.append((b"mcp-session-id", session.encode()))
    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": "/mcp",
        "raw_path": b"/mcp",
        "query_string": b"",
        "headers": fields,
    }
    nobody = cast(Any, None)
    request = UpstreamRequest("GET", b"/mcp", ())
    inbound = read_inbound(scope, max_header_bytes=1_000, max_field_bytes=1_000)
    return Exchange(inbound, identity, cast(Upstream, nobody), request, nobody, nobody)


def test_callers_that_nothing_tells_apart_are_one_and_have_no_scope_of_their_own() -> None:
    nobody = exchange_of(Identity(), None)
    assert not nobody.has_scope
    assert nobody.scope(None) == Scope(principal=ANONYMOUS)
    assert nobody.owner is None
    assert exchange_of(Identity(), "s").has_scope
    assert exchange_of(Identity("t", "ann"), None).has_scope


@pytest.mark.parametrize(("revision", "session"), [("2025-11-25", "s"), ("2026-07-28", None)])
def test_where_a_revision_has_no_sessions_one_that_is_named_tells_nobody_apart(
    revision: str, session: str | None
) -> None:
    knows = capabilities_of(revision)
    assert knows is not None
    ours = exchange_of(Identity("t", "ann"), "s").scope_under(knows)
    assert ours == Scope(tenant="t", principal="ann", session=session)


def test_sessions_are_counted_for_a_principal_and_for_nobody_else() -> None:
    principals = Principals(1, 900)
    exchange_of(Identity(), "s").note_session(principals, "s")
    ann = exchange_of(Identity("t", "ann"), "s")
    assert ann.owner == Scope(tenant="t", principal="ann")
    ann.note_session(principals, None)
    principals.check(ann.owner, 0.0)
    ann.note_session(principals, "s")
    with pytest.raises(RequestOverLimit):
        principals.check(ann.owner, 0.0)
