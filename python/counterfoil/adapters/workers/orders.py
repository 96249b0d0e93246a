"""What a supervisor tells the processes that it starts: the configuration, their place, what they inherit.

It travels in an environment variable, holds no secret, and is read by a process of the same release.
"""

from __future__ import annotations

import os

import msgspec

from counterfoil.adapters.gateway.config import GatewayConfig
from counterfoil.adapters.peers.directory import SocketDirectory
from counterfoil.adapters.peers.members import Members
from counterfoil.errors import ConfigError

VARIABLE = "COUNTERFOIL_WORKER"


class WorkerOrders(msgspec.Struct, frozen=True, kw_only=True):
    """The orders of one worker.

    `listener` and `lifeline` are inherited file descriptors: the listening socket of all workers, and the end
    of a pipe that reads as closed once the supervisor is gone.
    """

    config: GatewayConfig
    directory: str
    worker: int
    incarnation: int
    listener: int
    lifeline: int

    def members(self) -> Members:
        """Return who the workers are, as this one sees them."""
        return Members(
            SocketDirectory(self.directory),
            worker=self.worker,
            incarnation=self.incarnation,
            workers=self.config.serve.workers,
            name=self.config.serve.self_name or "",
        )


def write_orders(orders: WorkerOrders) -> str:
    return msgspec.json.encode(orders).decode()


def read_orders() -> WorkerOrders | None:
    """Return what this process was started with, and forget it; None for a process that nobody supervises."""
    text = os.environ.pop(VARIABLE, None)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=WorkerOrders)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigError(VARIABLE, f"set by the supervisor of --workers only: {error}") from None
