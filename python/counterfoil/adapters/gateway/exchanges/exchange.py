"""One request on its way through the gateway; every way of answering is given one.

It decides nothing: it says whose the request is, and passes it on as it is.
"""

from __future__ import annotations

import time

import msgspec

from counterfoil.adapters.gateway.across.across import Passing
from counterfoil.adapters.gateway.arrival.inbound import Inbound
from counterfoil.adapters.gateway.arrival.scopes import ANONYMOUS, Identity
from counterfoil.adapters.gateway.sessions.principals import Principals
from counterfoil.adapters.gateway.upstream.passthrough import OnHead, OnPiece, pass_through
from counterfoil.adapters.gateway.wire.asgi import Receive, Send
from counterfoil.adapters.gateway.wire.upstream_port import Upstream, UpstreamRequest
from counterfoil.native import Scope
from counterfoil.protocol.revisions import Capabilities


class Exchange(msgspec.Struct, frozen=True):
    """One request on its way: what was read of it, whose it is, where it goes, and how to answer."""

    inbound: Inbound
    identity: Identity
    upstream: Upstream
    request: UpstreamRequest
    receive: Receive
    send: Send
    via: str | None = None
    """Which process passed it on: then it is answered here, and goes no further."""

    @property
    def route(self) -> str:
        """What keys of calls are told apart by, beside whose they are."""
        return self.inbound.target.partition(b"?")[0].decode("latin-1")

    @property
    def has_scope(self) -> bool:
        """Whether anything tells its caller from others."""
        return self.inbound.session is not None or self.identity.principal is not None

    def scope(self, session: str | None) -> Scope:
        """Return whose request it is.  Callers that nothing tells apart are one principal, `ANONYMOUS`."""
        if session is None and self.identity.principal is None:
            return Scope(tenant=self.identity.tenant, principal=ANONYMOUS)
        return Scope(tenant=self.identity.tenant, principal=self.identity.principal, session=session)

    def scope_under(self, knows: Capabilities) -> Scope:
        """Return whose request it is where its revision may have no sessions."""
        return self.scope(self.inbound.session if knows.has_sessions else None)

    @property
    def owner(self) -> Scope | None:
        """Whose sessions are counted together; None where no principal is configured."""
        principal = self.identity.principal
        return Scope(tenant=self.identity.tenant, principal=principal) if principal is not None else None

    def note_session(self, principals: Principals, session: str | None) -> None:
        """Note that its principal uses a session."""
        owner = self.owner
        if owner is not None and session is not None:
            principals.note(owner, session, time.monotonic())

    def passing(self, scope: Scope) -> Passing:
        """Return it as another process is given it."""
        return Passing(self.inbound, self.identity, self.request.body, self.receive, self.send, scope)

    async def pass_on(self, on_head: OnHead | None = None, on_piece: OnPiece | None = None) -> None:
        """Pass it as it is, and its answer too.  Raises what `pass_through` raises."""
        await pass_through(
            self.upstream, self.request, self.receive, self.send, on_head=on_head, on_piece=on_piece
        )
