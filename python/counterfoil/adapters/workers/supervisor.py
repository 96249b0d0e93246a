"""Keeps the workers of one gateway running: starts them on one listening socket, and again when they die.

It serves no client.  The socket is inherited, not opened by each: connections that wait in its queue are
taken by whoever lives, so a worker that dies loses only those that it had accepted.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
from anyio.abc import Process

from counterfoil.adapters.gateway.config import GatewayConfig
from counterfoil.adapters.peers.directory import SocketDirectory
from counterfoil.adapters.peers.members import Members
from counterfoil.adapters.peers.owners import Place
from counterfoil.adapters.peers.peers import Peers
from counterfoil.adapters.peers.wire import Report, Reported
from counterfoil.adapters.workers.orders import VARIABLE, WorkerOrders, write_orders
from counterfoil.errors import ConfigError
from counterfoil.native import KeyRing

_LOGGER = logging.getLogger("counterfoil.gateway")

#: A worker that dies sooner than this after its start was complete has failed to live.
STEADY_S = 2.0
#: So many failures on end are a crash loop.
MOST_FAILURES = 5
#: How long is waited before the next start, by failures on end.
BACKOFF_S = (0.0, 0.1, 0.5, 1.0, 2.0)
_START_S = 60.0
#: What stays as it is until a restart: the supervisor holds it, or workers old and new share it.
_KEPT = ("listen", "admin", "workers", "backend", "keys", "ledger", "sockets")
_POLL_S = 0.02
#: Beyond the drain, before a worker is killed.
_EXTRA_S = 10.0


class Seat:
    """One worker's place, and the process that has it now."""

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self.incarnation = random.randrange(256)
        self.process: Process | None = None
        self.is_ready = False
        self.is_leaving = False
        self.restarts = 0
        self.failures = 0
        self.told_to_end = anyio.Event()
        #: Set at each change of `is_ready`.
        self.changed = anyio.Event()

    def note_ready(self, is_ready: bool) -> None:
        self.is_ready = is_ready
        self.changed.set()
        self.changed = anyio.Event()


class Supervisor:
    """The workers of one gateway; `reread` returns the configuration anew when they are reloaded."""

    def __init__(
        self,
        config: GatewayConfig,
        listener: socket.socket,
        directory: Path,
        *,
        reread: Callable[[], GatewayConfig],
    ) -> None:
        self.seats = [Seat(number) for number in range(1, config.serve.workers + 1)]
        self.is_draining = False
        self._config = config
        self._listener = listener
        self._directory = SocketDirectory(directory)
        self._reread = reread
        members = Members(self._directory, worker=0, incarnation=0, workers=config.serve.workers)
        # It asks over Unix sockets only, which need no key.
        self._peers = Peers(members, KeyRing.random())
        self._lifeline, self._own_end = os.pipe()
        self._all_ready = anyio.Event()
        self._reloading = anyio.Lock()
        self._failure: str | None = None

    async def run(self, on_ready: Callable[[], None]) -> str | None:
        """Keep the workers running until `drain` has ended; return why, if it was no wish of anybody's."""
        try:
            async with anyio.create_task_group() as tasks:
                for seat in self.seats:
                    tasks.start_soon(self._keep, seat)
                await self._all_ready.wait()
                if not self.is_draining:
                    on_ready()
            return self._failure
        finally:
            for seat in self.seats:
                if seat.process is not None and seat.process.returncode is None:
                    seat.process.kill()
            os.close(self._own_end)
            os.close(self._lifeline)

    # --- what is asked of it

    def drain(self) -> None:
        """End every worker as SIGTERM does; `run` returns when the last one has ended."""
        self.is_draining = True
        self._all_ready.set()
        for seat in self.seats:
            _end(seat)

    async def reload(self) -> None:
        """Replace the workers one by one: each drains, and the next one waits until its heir is ready."""
        async with self._reloading:
            try:
                self._config = _keep_places(self._reread(), self._config)
            except ConfigError as error:
                _log({"event": "reload-refused", "key": error.key, "why": str(error)}, logging.ERROR)
                return
            for seat in self.seats:
                if self.is_draining:
                    return
                seat.is_leaving = True
                _end(seat)
                while seat.is_ready or seat.is_leaving:
                    await seat.changed.wait()
                while not seat.is_ready and not self.is_draining:
                    await seat.changed.wait()
            _log({"event": "reloaded", "workers": len(self.seats)})

    async def ask(self, seat: Seat) -> Reported | None:
        """Return a worker's metrics and status; None if it does not say."""
        line = await self._peers.ask(Place(0, seat.worker), Report())
        return line if isinstance(line, Reported) else None

    # --- one worker

    async def _keep(self, seat: Seat) -> None:
        while not self.is_draining:
            await self._live(seat)
            if not self.is_draining:
                await anyio.sleep(BACKOFF_S[min(seat.failures, len(BACKOFF_S) - 1)])
        seat.note_ready(False)

    async def _live(self, seat: Seat) -> None:
        seat.told_to_end = anyio.Event()
        seat.incarnation = (seat.incarnation + 1) & 0xFF
        began = time.monotonic()
        seat.process = process = await self._start(seat)
        ready_at = None
        async with anyio.create_task_group() as watching:

            async def await_ready() -> None:
                nonlocal ready_at
                if await self._await_ready(seat):
                    ready_at = time.monotonic()
                    start_ms = round((ready_at - began) * 1000)
                    _log({"event": "worker-ready", "worker": seat.worker, "start_ms": start_ms})
                    seat.note_ready(True)
                    if all(each.is_ready for each in self.seats):
                        self._all_ready.set()

            watching.start_soon(await_ready)
            if self.is_draining:
                _end(seat)
            await self._wait(seat, process)
            watching.cancel_scope.cancel()
        was_asked = self.is_draining or seat.is_leaving
        seat.is_leaving = False
        seat.note_ready(False)
        if was_asked:
            seat.failures = 0
            return
        seat.restarts += 1
        lived_s = time.monotonic() - ready_at if ready_at is not None else 0.0
        seat.failures = seat.failures + 1 if lived_s < STEADY_S else 0
        facts = {"event": "worker-died", "worker": seat.worker, "code": process.returncode}
        _log({**facts, "lived_s": round(lived_s, 3)}, logging.ERROR)
        if seat.failures >= MOST_FAILURES:
            self._failure = (
                f"worker {seat.worker} died {seat.failures} times on end, the last time with code "
                f"{process.returncode}; what it wrote before says why"
            )
            self.drain()

    async def _wait(self, seat: Seat, process: Process) -> None:
        """Wait for its end; one that was told to end and does not is killed."""
        async with anyio.create_task_group() as tasks:

            async def kill_late() -> None:
                await seat.told_to_end.wait()
                await anyio.sleep(self._config.serve.drain_s + _EXTRA_S)
                process.kill()

            tasks.start_soon(kill_late)
            await process.wait()
            tasks.cancel_scope.cancel()

    async def _start(self, seat: Seat) -> Process:
        orders = WorkerOrders(
            config=self._config,
            directory=str(self._directory.path),
            worker=seat.worker,
            incarnation=seat.incarnation,
            listener=self._listener.fileno(),
            lifeline=self._lifeline,
        )
        return await anyio.open_process(
            [sys.executable, *_warning_options(), "-m", "counterfoil", "gateway"],
            stdin=None,
            stdout=None,
            stderr=None,
            env={**os.environ, VARIABLE: write_orders(orders)},
            pass_fds=(self._listener.fileno(), self._lifeline),
        )

    async def _await_ready(self, seat: Seat) -> bool:
        path = anyio.Path(self._directory.socket_of(seat.worker, seat.incarnation))
        with anyio.move_on_after(_START_S):
            while True:
                if await path.exists() and await self.ask(seat) is not None:
                    return True
                await anyio.sleep(_POLL_S)
        _log({"event": "worker-late", "worker": seat.worker}, logging.ERROR)
        if seat.process is not None:
            seat.process.kill()
        return False


def _end(seat: Seat) -> None:
    process = seat.process
    if process is not None and process.returncode is None:
        seat.told_to_end.set()
        process.send_signal(signal.SIGTERM)


def _keep_places(new: GatewayConfig, old: GatewayConfig) -> GatewayConfig:
    """Take a new configuration over, but for what the supervisor itself holds open."""
    kept = {name: getattr(old.serve, name) for name in _KEPT}
    if new.serve.keys is not None:
        kept["keys"] = new.serve.keys
    return msgspec.structs.replace(new, serve=msgspec.structs.replace(new.serve, **kept))


def _warning_options() -> list[str]:
    return [f"-W{option}" for option in sys.warnoptions]


def _log(facts: dict[str, object], level: int = logging.INFO) -> None:
    _LOGGER.log(level, "%s", json.dumps(facts))
