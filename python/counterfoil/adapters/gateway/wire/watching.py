"""Runs work for a client only as long as the client is there.

`send()` returning is never taken for delivery: `receive()` is what tells that a client has gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from counterfoil.adapters.gateway.wire.asgi import Receive


async def run_while_present(receive: Receive, work: Callable[[], Awaitable[None]]) -> bool:
    """Run `work` to its end, or cancel it when the client disconnects; return whether it came to its end.

    What `work` raises is raised here, not as a group.  The request body must have been read before.
    """
    finished = False
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        try:
            await work()
            finished = True
        except Exception as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return finished
