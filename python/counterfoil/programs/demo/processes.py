"""Starts the demo's servers as child processes and ends them, whatever happens to the demo.

A child lives while its standard input is open; leaving the block waits for its end, or kills it.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from counterfoil.adapters.serving import listen, serve_app

_START_S = 30.0
_END_S = 5.0


def serve_until_stdin_closes(app: Any, *, backend: str = "asyncio") -> None:
    """Serve `app` on a free port, say `ready PORT`, and end with standard input.  For children only."""
    anyio.run(serve_child, app, backend=backend)


async def serve_child(app: Any) -> None:
    """The same from within a loop."""
    listener = listen()
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_wait_for_end_of_stdin, stop)
        print(f"ready {listener.getsockname()[1]}", flush=True)
        await serve_app(app, listener, stop, grace_s=1)


async def _wait_for_end_of_stdin(stop: anyio.Event) -> None:
    await anyio.to_thread.run_sync(sys.stdin.buffer.read, abandon_on_cancel=True)
    stop.set()


class Child:
    """A running child process: its loopback `port`, and the lines it wrote to standard error."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}/mcp"
        self.log: list[str] = []

    def kill(self) -> None:
        """End the process now, without any chance to tidy up."""
        self.process.kill()


@asynccontextmanager
async def start_child(module: str, arguments: Sequence[str]) -> AsyncIterator[Child]:
    """Run `python -m module arguments...` until the block ends; `RuntimeError` if it does not get ready."""
    process = await anyio.open_process(
        [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    log: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_collect_lines, process, log)
        try:
            child = Child(process, await _read_port(process, log))
            child.log = log
            yield child
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
            tasks.cancel_scope.cancel()


async def _read_port(process: Process, log: list[str]) -> int:
    assert process.stdout is not None
    text = ""
    with anyio.move_on_after(_START_S):
        async for piece in TextReceiveStream(process.stdout):
            text += piece
            if "\n" in text and text.startswith("ready "):
                return int(text.split()[1])
    raise RuntimeError(f"a child process did not get ready: {' | '.join(log[-5:]) or text or 'no output'}")


async def _collect_lines(process: Process, log: list[str]) -> None:
    assert process.stderr is not None
    rest = ""
    async for piece in TextReceiveStream(process.stderr, errors="replace"):
        *lines, rest = (rest + piece).split("\n")
        log.extend(lines)
        del log[:-10_000]
    log.extend([rest] if rest else [])


async def _end(process: Process) -> None:
    if process.stdin is not None:
        await process.stdin.aclose()
    with anyio.move_on_after(_END_S):
        await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            await stream.aclose()


def free_ports(count: int) -> list[int]:
    """Return ports of this host that nothing listened at a moment ago."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(listener.getsockname()[1]) for listener in listeners]
