"""Speaks the lifespan protocol of ASGI for something that runs while a block is open."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from counterfoil.adapters.gateway.wire.asgi import Receive, Send


async def run_lifespan(running: AbstractAsyncContextManager[None], receive: Receive, send: Send) -> None:
    """Hold `running` open between startup and shutdown; what fails to start is told to the server."""
    await receive()
    started = False
    try:
        async with running:
            started = True
            await send({"type": "lifespan.startup.complete"})
            await receive()
    except Exception as error:
        if started:
            await send({"type": "lifespan.shutdown.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.startup.failed", "message": f"{type(error).__name__}: {error}"})
        raise
    await send({"type": "lifespan.shutdown.complete"})
