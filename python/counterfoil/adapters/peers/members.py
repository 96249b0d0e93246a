"""Who the processes of one gateway are, and where each is reached: workers by socket, replicas by name.

Replicas may come and go while the gateway runs; each is taken to have as many workers as this one.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import msgspec

from counterfoil.adapters.peers.channel import Address
from counterfoil.adapters.peers.directory import SocketDirectory
from counterfoil.adapters.peers.owners import Owner, Place, replica_number
from counterfoil.errors import ConfigError


class Replica(msgspec.Struct, frozen=True):
    """Another host's gateway: its worker k listens at `port` + k - 1."""

    name: str
    host: str
    port: int
    tls: ssl.SSLContext | None = None


class Members:
    """The places of a gateway, as this process sees them.

    `workers` is how many this host is known to have; without it they are who has a socket in `directory`.
    `keeps_sessions`: each has a server of its own, so a session is in one of them, and so is all it asks.
    """

    def __init__(
        self,
        directory: SocketDirectory,
        *,
        worker: int,
        incarnation: int,
        workers: int = 0,
        name: str = "",
        keeps_sessions: bool = False,
    ) -> None:
        self.keeps_sessions = keeps_sessions
        #: This process, as it stands in the streams that it opens.
        replica = replica_number(name) if name else 0
        self.own = Owner(Place(replica, worker), incarnation)
        #: What `via` says of this process.
        self.name = f"{name}/{worker}" if name else f"worker {worker}"
        self.directory = directory
        self._workers = workers
        self._replicas: dict[int, Replica] = {}
        self._own_name = name

    @property
    def shares_calls(self) -> bool:
        """Whether there are other processes on this host, and each may run any call."""
        return self._workers != 1 and not self.keeps_sessions

    def set_replicas(self, replicas: Mapping[str, Replica]) -> None:
        """Say who the other replicas are from now on; raises `ConfigError` if two names have one number."""
        numbered: dict[int, Replica] = {}
        for name, replica in replicas.items():
            number = replica_number(name)
            if number == self.own.place.replica or number in numbered:
                raise ConfigError("peers", f"{name!r} has the number of another replica: rename one of them")
            numbered[number] = replica
        if numbered and not self._own_name:
            raise ConfigError("self", "a replica among others needs its own name: --self NAME")
        self._replicas = numbered

    def places(self) -> list[Place]:
        """Return every place, this process's own among them, in the same order everywhere."""
        own = self.own.place
        workers = set(range(1, self._workers + 1)) | {own.worker}
        if not self._workers:
            workers |= {worker for worker, _ in self.directory.lives()}
        replicas = (own.replica, *self._replicas)
        return sorted(Place(replica, worker) for replica in replicas for worker in workers)

    @property
    def has_replicas(self) -> bool:
        """Whether there are other hosts."""
        return bool(self._replicas)

    def others(self) -> list[Place]:
        return [place for place in self.places() if place != self.own.place]

    def is_own_replica(self, place: Place) -> bool:
        """Whether a place is on this host, where the kernel knows who lives."""
        return place.replica == self.own.place.replica

    def address_of(self, place: Place, incarnation: int | None) -> Address | None:
        """Return where a place (or one life of it) is reached; None if there is no such member."""
        if not self.is_own_replica(place):
            replica = self._replicas.get(place.replica)
            return Address(host=replica.host, port=replica.port + place.worker - 1) if replica else None
        lives = [life for life in self.directory.lives() if life[0] == place.worker]
        if incarnation is not None:
            lives = [life for life in lives if life[1] == incarnation]
        return Address(path=self.directory.socket_of(*lives[-1])) if lives else None

    def tls_of(self, place: Place) -> ssl.SSLContext | None:
        replica = self._replicas.get(place.replica)
        return replica.tls if replica is not None else None
