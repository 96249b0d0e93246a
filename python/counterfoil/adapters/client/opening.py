"""`connect`: what users call to open a connection.

It collects the options and opens nothing; entering the connection does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from counterfoil.adapters.client.connection import Connection
from counterfoil.adapters.client.dispatching import Confirm
from counterfoil.adapters.client.replies import Answerer
from counterfoil.adapters.client.settings import ConnectSettings, VerdictListener
from counterfoil.adapters.dispatcher import Policy
from counterfoil.decisions.reconnect import ReconnectLimits
from counterfoil.handlers import Handlers
from counterfoil.limits import Limits
from counterfoil.protocol.client_stream.foreign_ids import Declared
from counterfoil.protocol.revisions import LAST_WITH_SESSIONS
from counterfoil.stores.ledger_interface import Ledger

if TYPE_CHECKING:
    import httpx2


def connect(
    url: str,
    *,
    ledger: Ledger | None = None,
    handlers: Handlers | None = None,
    client: httpx2.AsyncClient | None = None,
    headers: Mapping[str, str] | None = None,
    revision: str = LAST_WITH_SESSIONS.revision,
    session_id: str | None = None,
    principal: str | None = None,
    client_name: str = "counterfoil",
    client_version: str = "0",
    capabilities: Mapping[str, Any] | None = None,
    answer: Mapping[str, Answerer] | None = None,
    on_verdict: VerdictListener | None = None,
    on_unverifiable: Literal["end_stream", "at_most_once"] = "end_stream",
    on_lost_stream: Literal["ask", "accept"] = "ask",
    on_failed: Policy = "end_stream",
    on_indeterminate: Policy = "end_stream",
    confirm: Confirm | None = None,
    judge_within_s: float = 5.0,
    handshake_s: float = 30.0,
    declared: Declared | None = None,
    reconnect: ReconnectLimits | None = None,
    limits: Limits | None = None,
    standalone: bool = True,
    end_session: bool | None = None,
) -> Connection:
    """Connect to an MCP server over streamable HTTP; use it with `async with`.

    `ledger` keeps what must survive this process: keyed calls, how far each stream is processed, the session
    itself, which the next start with the same ledger joins again.  `handlers` run for notifications by name,
    each effect once as its kind says; without them iterate `deliveries()`.

    `client` is your own httpx2 client, with its credentials, proxies and certificates; without it one is
    made that reads no environment.  `headers` go with every request.  `principal` names whose calls these
    are, in the ledger.  `session_id` joins a session that was opened before, in `revision`; it is then not
    ended at the end.  `end_session` says whether it is otherwise: by default where there is no ledger.

    `answer` maps the methods of the server's requests (`elicitation/create`, `sampling/createMessage`,
    `roots/list`) to async functions of their parameters.  `on_verdict` is told every verdict with the name
    of its stream.  The policies fail closed by default: what is unverifiable, failed or indeterminate ends
    the delivery of its stream; with `on_unverifiable="at_most_once"` such events run if their handler is
    idempotent, or if `confirm` says so.

    Entering raises HandshakeFailed, and UnsafeHandler where a handler's kind is not safe on the ledger.
    Needs the extra `http`.  May be cancelled anywhere: requests without an outcome then end as
    indeterminate, or as not applied where nothing was sent.
    """
    settings = ConnectSettings(
        revision=revision,
        session_id=session_id,
        principal=principal,
        client_name=client_name,
        client_version=client_version,
        capabilities=capabilities,
        answer=answer or {},
        on_verdict=on_verdict,
        on_unverifiable=on_unverifiable,
        on_lost_stream=on_lost_stream,
        on_failed=on_failed,
        on_indeterminate=on_indeterminate,
        confirm=confirm,
        judge_within_s=judge_within_s,
        handshake_s=handshake_s,
        declared=declared or Declared(),
        reconnect=reconnect or ReconnectLimits(),
        limits=limits or Limits(),
        standalone=standalone,
        end_session=end_session,
    )
    return Connection(url, settings, ledger=ledger, handlers=handlers, client=client, headers=headers)
