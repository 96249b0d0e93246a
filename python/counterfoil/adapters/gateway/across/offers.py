"""Which other process has an undelivered call, so that an identical one is sent there and not run again.

Heard from the others when it happens, which is rare; forgotten when its window is over.
"""

from __future__ import annotations

import time
from collections import OrderedDict

from counterfoil.adapters.peers.owners import Owner

_REMEMBERED = 100_000


class Offers:
    """Offers of other processes, by what identical calls have in common; the oldest is forgotten first."""

    def __init__(self) -> None:
        self._offers: OrderedDict[tuple[bytes, Owner], float] = OrderedDict()
        self._owners: dict[bytes, list[Owner]] = {}

    def __len__(self) -> int:
        return len(self._offers)

    def note(self, identity: bytes, owner: Owner, *, within_s: float) -> None:
        """Note that an identical call belongs to `owner` for so long."""
        self.forget(identity, owner)
        self._offers[identity, owner] = time.monotonic() + within_s
        self._owners.setdefault(identity, []).append(owner)
        if len(self._offers) > _REMEMBERED:
            self.forget(*next(iter(self._offers)))

    def forget(self, identity: bytes, owner: Owner) -> None:
        if self._offers.pop((identity, owner), None) is None:
            return
        owners = self._owners[identity]
        owners.remove(owner)
        if not owners:
            del self._owners[identity]

    def find(self, identity: bytes) -> Owner | None:
        """Return who offered first."""
        now = time.monotonic()
        for owner in list(self._owners.get(identity, ())):
            if self._offers[identity, owner] > now:
                return owner
            self.forget(identity, owner)
        return None
