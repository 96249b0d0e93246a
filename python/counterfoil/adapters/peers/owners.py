"""Names of processes: the owner number in a stream token, and the place that it is of.

Values only; where a place is reached is known in `members`.
"""

from __future__ import annotations

import hashlib

import msgspec

#: Workers of one replica; a place takes eight bits.
MAX_WORKERS = 255


class Place(msgspec.Struct, frozen=True, order=True):
    """A seat that one process at a time takes: a worker (from 1) of a replica (0 where there is one)."""

    replica: int
    worker: int


class Owner(msgspec.Struct, frozen=True, order=True):
    """One life of a process at a place.

    `incarnation` (8 bits) tells lives apart, so that a stream of an earlier one is known to be gone.  Two
    lives of one number are harmless: the store of the later one does not know the stream.
    """

    place: Place
    incarnation: int

    @property
    def number(self) -> int:
        """The owner field of a stream token: 16 bits replica, 8 bits worker, 8 bits incarnation; never 0."""
        return self.place.replica << 16 | self.place.worker << 8 | self.incarnation

    @classmethod
    def of(cls, number: int) -> Owner | None:
        """Return whom an owner field names; None for one that no worker writes."""
        worker = number >> 8 & 0xFF
        return cls(Place(number >> 16, worker), number & 0xFF) if worker and number < 1 << 32 else None


def replica_number(name: str) -> int:
    """Return the 16 bits that stand for a replica's name, never 0."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "big") % 0xFFFF + 1


def choose_home(parts: tuple[str | None, ...], places: list[Place]) -> Place:
    """Return where the standalone stream of a session lives: the same place for everybody who asks.

    A rendezvous hash: a place that comes or goes moves the sessions of that place only.
    """
    session = msgspec.msgpack.encode(parts)

    def weight(place: Place) -> bytes:
        key = place.replica.to_bytes(2, "big") + place.worker.to_bytes(1, "big")
        return hashlib.blake2b(session, key=key, digest_size=8).digest()

    return max(places, key=weight)
