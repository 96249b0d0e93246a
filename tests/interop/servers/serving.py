"""Serves an ASGI app as a child process: prints `ready PORT`, and ends when its standard input closes."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from typing import Any

import uvicorn


def serve(app: Any) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1, ws="none")
    threading.Thread(target=end_with_stdin, daemon=True).start()
    print(f"ready {listener.getsockname()[1]}", flush=True)
    uvicorn.Server(config).run(sockets=[listener])


def serve_on(backend: str, app: Any) -> None:
    """Serve as our own program does: by hypercorn under trio, by uvicorn under asyncio."""
    import anyio
    from counterfoil.adapters.serving import listen, serve_app

    async def run() -> None:
        listener = listen()
        print(f"ready {listener.getsockname()[1]}", flush=True)
        await serve_app(app, listener, anyio.Event())

    threading.Thread(target=end_with_stdin, daemon=True).start()
    anyio.run(run, backend=backend)


def end_with_stdin() -> None:
    while sys.stdin.buffer.read(4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
