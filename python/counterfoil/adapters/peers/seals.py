"""Seals requests between hosts with the key ring, and refuses those that are unsealed, old or seen before.

A Unix socket needs none of this: its directory is this user's alone.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable

from counterfoil.native import KeyCheck, KeyRing

#: How far two hosts' clocks may be apart, the way of the request included.
WINDOW_S = 30.0
_REMEMBERED = 100_000


class SealRefused(Exception):
    """A request that is not from a peer, or was sent before; `why` is what is counted."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Seals:
    """The seals of one process; `clock` returns Unix seconds."""

    def __init__(self, keys: KeyRing, clock: Callable[[], float]) -> None:
        self._keys = keys
        self._clock = clock
        self._seen: OrderedDict[bytes, float] = OrderedDict()
        #: Refusals by reason: `missing`, `stale`, `forged`, `key`, `replayed`, `crowded`.
        self.refused: Counter[str] = Counter()

    def make(self, body: bytes) -> bytes:
        """Return the seal of a request, which passes once; at most 255 bytes."""
        stamp = b"%d.%s" % (round(self._clock() * 1000), secrets.token_hex(12).encode())
        return b"%s.%s" % (stamp, self._keys.seal(_sealed(stamp, body)).encode())

    def check(self, value: bytes | None, body: bytes) -> None:
        """Raise `SealRefused` unless a peer sealed this request lately, and it comes for the first time."""
        try:
            self._check(value, body)
        except SealRefused as refused:
            self.refused[refused.why] += 1
            raise

    def _check(self, value: bytes | None, body: bytes) -> None:
        if value is None:
            raise SealRefused("missing")
        time_ms, _, rest = value.partition(b".")
        nonce, _, seal = rest.partition(b".")
        if not (time_ms.isdigit() and len(time_ms) <= 15 and len(nonce) == 24):
            raise SealRefused("missing")
        now = self._clock()
        if abs(int(time_ms) / 1000 - now) > WINDOW_S:
            raise SealRefused("stale")
        verdict = self._keys.check_seal(_sealed(time_ms + b"." + nonce, body), seal)
        if verdict != KeyCheck.VERIFIED:
            raise SealRefused("key" if verdict == KeyCheck.UNKNOWN_KEY else "forged")
        self._forget(now)
        if nonce in self._seen:
            raise SealRefused("replayed")
        if len(self._seen) >= _REMEMBERED:
            raise SealRefused("crowded")  # forgetting one would let it in again
        self._seen[nonce] = now

    def _forget(self, now: float) -> None:
        while self._seen:
            nonce, since = next(iter(self._seen.items()))
            if now - since <= 2 * WINDOW_S:
                return
            del self._seen[nonce]


def _sealed(stamp: bytes, body: bytes) -> bytes:
    return b"peer\n" + stamp + b"\n" + hashlib.sha256(body).digest()
