"""An agent as many are written: a stock SDK client, and the same call once more after an error or a time-out.

It knows nothing of Counterfoil; the demo runs the same agent against every column.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Literal

import anyio
import msgspec

#: Silence after which the agent gives a call up.
PATIENCE_S = 3.0
#: Says whose a request is, to a gateway that was told to believe it.
PRINCIPAL_HEADER = "x-principal"

Ending = Literal["right", "other", "error", "hung"]


class Try(msgspec.Struct, frozen=True):
    """One attempt: how it ended, what it said, and the progress notes that came."""

    ending: Ending
    text: str
    progress: tuple[int, ...]
    seconds: float
    data: Any = None


class CallRecord(msgspec.Struct, frozen=True):
    """One call of the agent, with all its attempts."""

    label: str
    tries: tuple[Try, ...]

    @property
    def ending(self) -> Ending:
        return self.tries[-1].ending


#: Opens a client of a server's URL.
OpenClient = Callable[[str], AbstractAsyncContextManager[Any]]


class Agent:
    """Makes calls one after the other, in a session that it replaces after a failure."""

    def __init__(self, url: str, *, attempts: int = 2, opens: OpenClient | None = None) -> None:
        self._url = url
        self._attempts = attempts
        self._opens = opens or open_client

    async def place_orders(
        self, labels: list[str], tell: Callable[[CallRecord], None], *, steps: int, pause_ms: int
    ) -> None:
        """Tell a record per label, as the calls end."""
        waiting = list(labels)
        tries: list[Try] = []
        while waiting:
            attempt: Try | None = None
            async with self._opens(self._url) as client:
                while waiting:
                    attempt = None
                    attempt = await _try_order(client, waiting[0], steps, pause_ms)
                    if attempt.ending in ("error", "hung"):
                        break  # a new session for what follows
                    tell(CallRecord(waiting.pop(0), (*tries, attempt)))
                    tries = []
            if not waiting:
                return
            tries.append(attempt or Try("error", "the session was lost", (), 0.0))
            if len(tries) == self._attempts:
                tell(CallRecord(waiting.pop(0), tuple(tries)))
                tries = []


@asynccontextmanager
async def open_client(url: str) -> AsyncIterator[Any]:
    """Open a stock client by the `initialize` handshake; what its teardown raises is nobody's answer."""
    from mcp import Client

    with suppress(Exception):
        async with Client(url, mode="legacy") as client:
            yield client


@asynccontextmanager
async def open_named_client(url: str, *, negotiates: bool) -> AsyncIterator[Any]:
    """Likewise of one user, whom the gateway is told of; `negotiates`: by its own means, to the newest."""
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    with suppress(Exception):
        async with (
            create_mcp_http_client(headers={PRINCIPAL_HEADER: "agent"}) as http,
            Client(
                streamable_http_client(url, http_client=http), mode="auto" if negotiates else "legacy"
            ) as client,
        ):
            yield client


async def _try_order(client: Any, label: str, steps: int, pause_ms: int) -> Try:
    arguments = {"call": label, "steps": steps, "pause_ms": pause_ms}
    return await try_tool(client, "order", arguments, expected=f"receipt for {label}")


async def try_tool(
    client: Any, name: str, arguments: dict[str, Any], *, expected: str, patience_s: float = PATIENCE_S
) -> Try:
    """Call a tool once and say how it ended; silence for `patience_s` is an end."""
    progress: list[int] = []
    began = time.monotonic()
    last_sign = [began]

    async def note(number: float, _total: float | None, _message: str | None) -> None:
        progress.append(int(number))
        last_sign[0] = time.monotonic()

    def end(ending: Ending, text: str, data: Any = None) -> Try:
        return Try(ending, text, tuple(progress), time.monotonic() - began, data)

    result: Any = None
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            nonlocal result, failure
            try:
                result = await client.call_tool(name, arguments, progress_callback=note)
            except Exception as error:
                failure = error
            tasks.cancel_scope.cancel()

        tasks.start_soon(call)
        await _wait_for_silence(last_sign, patience_s)
        tasks.cancel_scope.cancel()
    if failure is not None:
        error = getattr(failure, "error", None)
        return end("error", str(failure), getattr(error, "data", None))
    if result is None:
        return end("hung", "")
    text = result.content[0].text if result.content else ""
    return end("right" if text == expected else "other", text)


async def _wait_for_silence(last_sign: list[float], patience_s: float) -> None:
    left = patience_s
    while left > 0:
        await anyio.sleep(left)
        left = last_sign[0] + patience_s - time.monotonic()
