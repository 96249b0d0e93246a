"""What the writer is made with; the ledger fills it from its limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from counterfoil.protocol.ledger_steps import Horizon


class WriterSettings(NamedTuple):
    """Times are in seconds, counts in jobs; `reach` is called at each boundary, for tests that fail there."""

    path: Path
    horizon: Horizon
    busy_s: float
    handler_s: float
    group: int
    queue: int
    foreign_keys: bool
    clock: Callable[[], float]
    reach: Callable[[str], None] | None
