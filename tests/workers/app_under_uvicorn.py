"""The app that `test_app_workers.py` serves by `uvicorn --workers 2`: each process has its own server."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from counterfoil import resumable_app
from counterfoil.adapters.gateway.arrival.scopes import HeaderSource, Scopes

sys.path.insert(0, str(Path(__file__).parent.parent / "adapters" / "gateway"))
from gateway_kit import Exchange, Upstream


async def on_call(exchange: Exchange) -> None:
    """Answer with the process that made the call; a session that another process opened is not known."""
    await exchange.start()
    await exchange.note(1)
    await exchange.result(os.getpid())
    await exchange.end()


class OwnSessions(Upstream):
    """A server that keeps its sessions in its process, as the SDK's servers do."""

    async def _answer(self, exchange: Exchange) -> None:
        if not self.sessions:
            self.sessions = os.getpid() * 1_000
        session = exchange.headers.get("mcp-session-id", "")
        if session and int(session.rpartition("-")[2]) // 1_000 != os.getpid():
            await exchange.json({}, 404)
        else:
            await super()._answer(exchange)


app = resumable_app(
    OwnSessions(on_call),
    sockets=os.environ["APP_SOCKETS"],
    ledger=os.environ.get("APP_LEDGER"),
    scope=Scopes(principal=HeaderSource("x-user", ["127.0.0.1"])),
)
