"""Serves an ASGI app by uvicorn on a free loopback port until standard input closes.

The parent reads one line, `ready PORT`; closing its end of the pipe (or dying) ends the child.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from typing import Any


def serve_until_stdin_closes(app: Any) -> None:
    """Run `app`; blocks.  Only for child processes: it signals its own process to stop."""
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    listener.set_inheritable(False)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, timeout_graceful_shutdown=1, timeout_keep_alive=60, ws="none"
    )
    server = uvicorn.Server(config)
    threading.Thread(target=_stop_at_end_of_stdin, daemon=True).start()
    print(f"ready {listener.getsockname()[1]}", flush=True)
    server.run(sockets=[listener])


def _stop_at_end_of_stdin() -> None:
    while sys.stdin.buffer.read(4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
