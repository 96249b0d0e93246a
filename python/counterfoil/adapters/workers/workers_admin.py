"""The admin app of a gateway of several workers: one answer for all of them, added up.

It asks them when it is asked, and changes nothing.
"""

from __future__ import annotations

from typing import Any

import anyio
import msgspec

from counterfoil.adapters.gateway.operation.admin import Facts
from counterfoil.adapters.workers.adding_up import add_metrics, add_values
from counterfoil.adapters.workers.supervisor import Seat, Supervisor


class WorkersFacts(Facts):
    """What is told of the workers of one gateway."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    @property
    def is_ready(self) -> bool:
        """Whether new requests should come here: somebody takes them, and nothing drains."""
        return not self._supervisor.is_draining and any(seat.is_ready for seat in self._supervisor.seats)

    async def report(self) -> tuple[bytes, bytes]:
        """Return the metrics of all workers as Prometheus text, and their status as JSON."""
        seats = self._supervisor.seats
        said: dict[int, tuple[bytes, Any]] = {}

        async def ask(seat: Seat) -> None:
            reported = await self._supervisor.ask(seat)
            if reported is not None:
                said[seat.worker] = reported.metrics, msgspec.json.decode(reported.status)

        async with anyio.create_task_group() as tasks:
            for seat in seats:
                tasks.start_soon(ask, seat)
        own = (
            "# TYPE counterfoil_workers gauge\n"
            f"counterfoil_workers {sum(seat.is_ready for seat in seats)}\n"
            "# TYPE counterfoil_worker_restarts_total counter\n"
            f"counterfoil_worker_restarts_total {sum(seat.restarts for seat in seats)}\n"
        )
        metrics = add_metrics([*(text for text, _ in said.values()), own.encode()])
        total: Any = None
        for _, status in said.values():
            total = add_values(total, status) if total is not None else status
        facts = {**(total or {"store": None}), "ready": self.is_ready}
        facts["workers"] = [
            {
                "worker": seat.worker,
                "ready": seat.is_ready,
                "restarts": seat.restarts,
                "process": seat.process.pid if seat.process is not None else None,
                "store": said[seat.worker][1]["store"] if seat.worker in said else None,
            }
            for seat in seats
        ]
        return metrics, msgspec.json.encode(facts)
