"""One true history of a stream: what was really appended, whatever a server or a network then says of it."""

from __future__ import annotations

import base64
import itertools
import json
import random
from collections.abc import Iterator

from counterfoil.native import EventId, KeyRing, Scope, StreamToken, encode_event

RING = KeyRing.from_secret(b"simulated-key-of-32-bytes-exact!", made_s=1)
SCOPE = Scope(session="s")
REQUEST_ID = 7


class Happening:
    """One event that really happened; compared by identity, as its bytes may be those of another."""

    def __init__(self, number: int, data: bytes, *, is_answer: bool) -> None:
        self.number = number
        self.data = data
        self.is_answer = is_answer


class Happenings:
    """Makes events; each has a number of its own, unless it is made plain: then many look alike."""

    def __init__(self) -> None:
        self._numbers: Iterator[int] = itertools.count(1)
        self.all: dict[int, Happening] = {}

    def notification(self, *, is_plain: bool = False) -> Happening:
        number = next(self._numbers)
        params = {} if is_plain else {"n": number}
        body = {"jsonrpc": "2.0", "method": "notifications/message", "params": params}
        return self._add(number, json.dumps(body).encode(), is_answer=False)

    def decoy(self) -> Happening:
        """A response to a request that looks like ours and is another: its id is a text."""
        number = next(self._numbers)
        body = {"jsonrpc": "2.0", "id": str(REQUEST_ID), "result": {"n": number}}
        return self._add(number, json.dumps(body).encode(), is_answer=False)

    def answer(self) -> Happening:
        number = next(self._numbers)
        body = {"jsonrpc": "2.0", "id": REQUEST_ID, "result": {"n": number}}
        return self._add(number, json.dumps(body).encode(), is_answer=True)

    def _add(self, number: int, data: bytes, *, is_answer: bool) -> Happening:
        self.all[number] = Happening(number, data, is_answer=is_answer)
        return self.all[number]


def random_text(rng: random.Random, length: int) -> bytes:
    return bytes(rng.getrandbits(8) for _ in range(length))


def random_epoch(rng: random.Random) -> str:
    return base64.urlsafe_b64encode(random_text(rng, 8)).decode().rstrip("=")


class History:
    """Events 1 … n of one stream and epoch, the window that is kept, and the ids that a scheme gives them."""

    def __init__(
        self,
        rng: random.Random,
        *,
        kind: str,
        scheme: str,
        start: int = 0,
        token: StreamToken | None = None,
    ) -> None:
        self._rng = rng
        self.kind = kind
        self.scheme = scheme
        minted = StreamToken.mint(kind=kind, random=random_text(rng, 12))  # type: ignore[arg-type]
        self.token = minted if token is None else token
        self.epoch = random_epoch(rng)
        self.start = start
        self.first = start + 1
        self.was_written = False
        self.events: list[Happening] = []
        self._foreign_ids: list[str] = []
        self._ids_to_use_again: list[str] = []
        self._begin_chain()

    def _begin_chain(self) -> None:
        self._chain = RING.digest_chain(SCOPE, stream=self.token, epoch=self.epoch)
        self._digests = [self._chain.current]

    @property
    def last(self) -> int:
        return self.start + len(self.events)

    @property
    def is_answered(self) -> bool:
        return any(event.is_answer for event in self.events)

    def event(self, sequence: int) -> Happening:
        return self.events[sequence - self.start - 1]

    def append(self, event: Happening) -> None:
        self.events.append(event)
        self._digests.append(self._chain.append(self.last, data=event.data))
        if self.scheme == "counter":
            self._foreign_ids.append(str(self.last))
        elif self._ids_to_use_again:
            self._foreign_ids.append(self._ids_to_use_again.pop(0))
        else:
            hexa = random_text(self._rng, 16).hex()
            self._foreign_ids.append(f"{hexa[:8]}-{hexa[8:12]}-{hexa[12:16]}-{hexa[16:20]}-{hexa[20:]}")

    def rewrite_tail(self, keep: int, *, keeps_ids: bool) -> None:
        """Lose everything above `keep`, as a failover to a stale copy does: the epoch stays, numbers are
        used again.

        With `keeps_ids` the ids of the lost events will name others.
        """
        kept = self.events[: max(0, keep - self.start)]
        ids = self._foreign_ids[: len(kept)]
        self._ids_to_use_again = self._foreign_ids[len(kept) :] if keeps_ids else []
        self.events, self._foreign_ids = [], []
        self._begin_chain()
        again, self._ids_to_use_again = self._ids_to_use_again, []
        for event, event_id in zip(kept, ids, strict=True):
            self.append(event)
            self._foreign_ids[-1] = event_id
        self._ids_to_use_again = again
        self.first = min(self.first, self.last + 1)

    def trim(self, first: int) -> None:
        self.first = max(self.first, min(first, self.last + 1))

    def id(self, sequence: int) -> EventId:
        digest = self._digests[sequence - self.start]
        return RING.event_id(SCOPE, stream=self.token, epoch=self.epoch, sequence=sequence, digest=digest)

    def digest(self, sequence: int) -> str:
        return self._digests[sequence - self.start]

    def text_id(self, sequence: int) -> str:
        if self.scheme == "cf1":
            return str(self.id(sequence))
        return self._foreign_ids[sequence - self.start - 1] if sequence > self.start else f"echo-{self.start}"

    def frame(self, sequence: int) -> bytes:
        return encode_event(self.event(sequence).data, id=self.text_id(sequence))

    def echo(self, sequence: int, *, retry: int | None = None) -> bytes:
        return encode_event(b"", id=self.text_id(sequence), retry=retry)

    def truth(self, event_id: str) -> Happening | None:
        """The event that an id of this history names."""
        if self.scheme == "cf1":
            places = range(self.start + 1, self.last + 1)
            sequence = next((n for n in places if str(self.id(n)) == event_id), None)
        else:
            sequence = self.find(event_id)
        return None if sequence is None or sequence == self.start else self.event(sequence)

    def find(self, event_id: str) -> int | None:
        """The sequence that one of these ids names here, as a server with opaque ids would look it up."""
        if event_id == f"echo-{self.start}":
            return self.start
        for place, held in enumerate(self._foreign_ids):
            if held == event_id:
                return self.start + place + 1
        return None
