"""The official SDK's everything-server, as its own `main` sets it up, on a free port (`serving.py`).

Its source is that of the SDK major that runs here; `--behind` puts our line in the place of its own store.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import sys
from typing import Any

import anyio
from serving import serve

RETRY_MS = 100
#: Tools that send a request to the client.
ASKING = (b'"test_sampling"', b'"test_elicitation')


def load(source: str) -> Any:
    spec = importlib.util.spec_from_file_location("everything_server", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def make_app(server: Any, store: Any) -> Any:
    if importlib.util.find_spec("mcp_types"):
        return server.streamable_http_app(
            event_store=store, retry_interval=RETRY_MS if store is not None else None
        )
    server._event_store = store  # an argument of the constructor, which the example calls
    return Patient(server.streamable_http_app())


class Patient:
    """Holds a call of a tool that asks its client until the client's standalone stream is open.

    The example of major 1 asks on that stream, and the SDK drops what it sends there before it is open (the
    example of major 2 says so).  Clients do not wait for it either, so the busier machine would decide.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._open: dict[bytes, anyio.Event] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        session = dict(scope.get("headers", ())).get(b"mcp-session-id")
        if session is None:
            await self._app(scope, receive, send)
            return
        is_open = self._open.setdefault(session, anyio.Event())

        async def note_open(message: Any) -> None:
            await send(message)
            if scope["method"] == "GET" and message.get("status") == 200:
                is_open.set()

        async def receive_late() -> Any:
            message = await receive()
            if any(tool in message.get("body", b"") for tool in ASKING):
                with anyio.move_on_after(10):
                    await is_open.wait()
            return message

        await self._app(scope, receive_late, note_open)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("--behind", choices=("stock-store", "our-store", "front"), default="stock-store")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    module = load(arguments.source)
    if arguments.behind == "stock-store":
        serve(make_app(module.mcp, module.event_store))
        return
    from counterfoil import KeyRing, ReplayEventStore, ReplayStore, resumable_app

    store = ReplayStore(keys=KeyRing.random())
    if arguments.behind == "our-store":
        serve(make_app(module.mcp, ReplayEventStore(store)))
    else:
        serve(resumable_app(make_app(module.mcp, None), store=store, retry_ms=RETRY_MS))


if __name__ == "__main__":
    main()
