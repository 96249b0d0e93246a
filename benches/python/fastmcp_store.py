"""Times an append to FastMCP's event store on its default memory; prints nanoseconds.

Run by the interpreter of `build/sdk2`, with the number of rounds, each of which appends `RUN` events.
"""

from __future__ import annotations

import asyncio
import sys
import time

from bench_store import message, payload
from fastmcp.server.event_store import EventStore

#: Enough to fill its default cap of 100 events a stream; each costs it some 0.2 ms.
RUN = 200


async def best_append_ns(rounds: int) -> float:
    store = EventStore()
    best = float("inf")
    for turn in range(rounds + 1):  # the first one fills it
        events = [message(payload(turn * RUN + number)) for number in range(RUN)]
        start = time.process_time()
        for event in events:
            await store.store_event("stream", event)
        spent = time.process_time() - start
        if turn:
            best = min(best, spent)
    return best / RUN * 1e9


if __name__ == "__main__":
    print(asyncio.run(best_append_ns(int(sys.argv[1]))))
