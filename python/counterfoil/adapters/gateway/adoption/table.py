"""Finds calls that may be adopted: by what they ask for, by stream, by request id, and by session.

Bounded: above `limit` calls without a client, the one that was left first is forgotten.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable

import anyio

from counterfoil.adapters.gateway.adoption.eligibility import Identity
from counterfoil.adapters.gateway.adoption.entries import AdoptableCall, CallWork
from counterfoil.adapters.gateway.wire.messages import RequestId
from counterfoil.native import Scope, StreamToken

#: Calls whose answer went to somebody else, remembered for a first caller who comes back.
_REMEMBERED = 1 << 16


#: Told an identity, and whether it can be adopted from now on, or no more.
OnOffer = Callable[[Identity, bool], None]


class AdoptionTable:
    """The calls of one gateway that are open, undelivered or in doubt."""

    def __init__(self, limit: int) -> None:
        #: Who tells other processes what can be adopted here.
        self.on_offer: OnOffer | None = None
        #: Told an identity when its first call comes here, and when its last one goes.
        self.on_identity: OnOffer | None = None
        self._offered: dict[AdoptableCall, None] = {}
        self._offers: Counter[Identity] = Counter()
        self._limit = limit
        self._by_identity: dict[Identity, list[AdoptableCall]] = {}
        self._by_session: dict[Scope, dict[StreamToken, AdoptableCall]] = {}
        self._away: OrderedDict[AdoptableCall, None] = OrderedDict()
        self._taken: OrderedDict[tuple[Scope, StreamToken], RequestId] = OrderedDict()
        self._taken_requests: dict[tuple[Scope, RequestId], StreamToken] = {}
        #: Works whose calls are gone from here, by the session that they were made in.
        self._taken_works: dict[Scope, set[CallWork]] = {}
        self._left: dict[Scope, None] = {}
        self._bells: dict[Identity, anyio.Event] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_session.values()))

    def add(self, entry: AdoptableCall) -> bool:
        """Take a call in; return whether an identical one came before."""
        entry.is_listed = True
        own = self._by_session.get(entry.scope)
        if own is None:
            own = self._by_session[entry.scope] = {}
        own[entry.stream.token] = entry
        equal = self._by_identity.get(entry.identity)
        if equal is None:
            self._by_identity[entry.identity] = [entry]
            if self.on_identity is not None:
                self.on_identity(entry.identity, True)
            return False
        equal.append(entry)
        return True

    def remove(self, entry: AdoptableCall) -> None:
        """Forget a call; its identity, stream and request id lead nowhere."""
        if not entry.is_listed:
            return
        entry.is_listed = False
        self._end_offer(entry)
        equal = self._by_identity[entry.identity]
        equal.remove(entry)
        if not equal:
            del self._by_identity[entry.identity]
            if self.on_identity is not None:
                self.on_identity(entry.identity, False)
        own = self._by_session[entry.scope]
        del own[entry.stream.token]
        if not own:
            del self._by_session[entry.scope]
            self._left.pop(entry.scope, None)
        self._away.pop(entry, None)
        self.ring(entry.identity)

    def take_away(self, entry: AdoptableCall) -> None:
        """Its work has a new holder: remember it for a first caller who comes back."""
        self.remove(entry)
        if entry.work is not None:
            origin = entry.work.origin
            self._taken_works.setdefault(origin.scope, set()).add(entry.work)
        # Ids only: what a call holds (its body, its answer's way) goes with its work.
        self._taken[entry.scope, entry.stream.token] = entry.request_id
        self._taken_requests[entry.scope, entry.request_id] = entry.stream.token
        if len(self._taken) > _REMEMBERED:
            (scope, token), request_id = self._taken.popitem(last=False)
            if self._taken_requests.get((scope, request_id)) == token:
                del self._taken_requests[scope, request_id]

    def note_away(self, entry: AdoptableCall) -> AdoptableCall | None:
        """Nobody is attached; return the call that has to be forgotten for that, if there are too many."""
        self.offer(entry)
        self._away[entry] = None
        self._away.move_to_end(entry)
        return next(iter(self._away)) if len(self._away) > self._limit else None

    def offer(self, entry: AdoptableCall) -> None:
        """Say that an identical call, wherever it arrives, belongs here."""
        if self.on_offer is None or entry in self._offered:
            return
        self._offered[entry] = None
        self._offers[entry.identity] += 1
        if self._offers[entry.identity] == 1:
            self.on_offer(entry.identity, True)

    @property
    def offered(self) -> list[bytes]:
        """What is offered to other processes, the latest last."""
        return [identity for identity in self._offers if isinstance(identity, bytes)]

    def has_offer(self, identity: Identity) -> bool:
        return identity in self._offers

    def _end_offer(self, entry: AdoptableCall) -> None:
        if self.on_offer is None or entry not in self._offered:
            return
        del self._offered[entry]
        self._offers[entry.identity] -= 1
        if not self._offers[entry.identity]:
            del self._offers[entry.identity]
            self.on_offer(entry.identity, False)

    def note_back(self, entry: AdoptableCall) -> None:
        self._end_offer(entry)
        self._away.pop(entry, None)

    def end_work(self, work: CallWork) -> None:
        """Forget a work that is over, and wanted no more."""
        works = self._taken_works.get(work.origin.scope)
        if works is not None:
            works.discard(work)
            if not works:
                del self._taken_works[work.origin.scope]

    def equal_to(self, entry: AdoptableCall) -> list[AdoptableCall]:
        """Return the identical calls that came before, oldest first."""
        equal = self._by_identity.get(entry.identity, ())
        return list(equal[: equal.index(entry)]) if entry.is_listed else list(equal)

    def of_stream(self, scope: Scope, token: StreamToken) -> AdoptableCall | None:
        return self._by_session.get(scope, {}).get(token)

    def taken_of_stream(self, scope: Scope, token: StreamToken) -> RequestId | None:
        """Return the request id of a call whose work has another holder, by its stream."""
        return self._taken.get((scope, token))

    def of_request(self, scope: Scope, request_id: RequestId) -> AdoptableCall | None:
        """Return the latest call of that id in a session."""
        found = (entry for entry in reversed(self.of_session(scope)) if entry.request_id == request_id)
        return next(found, None)

    def is_taken(self, scope: Scope, request_id: RequestId) -> bool:
        """Whether the work of the call of that id has another holder."""
        return (scope, request_id) in self._taken_requests

    def of_session(self, scope: Scope) -> list[AdoptableCall]:
        return list(self._by_session.get(scope, {}).values())

    def note_session(self, scope: Scope, *, has_left: bool) -> None:
        """Note that a session's client closed its standalone stream, or has one again."""
        if has_left == (scope in self._left):
            return
        if not has_left:
            del self._left[scope]
            return
        if scope not in self._by_session:
            return  # nothing of it is open: no need to know
        self._left[scope] = None
        for entry in self.of_session(scope):
            self.ring(entry.identity)

    def has_left(self, scope: Scope) -> bool:
        return scope in self._left

    def works_of(self, scope: Scope) -> set[CallWork]:
        """Return the works in this session upstream whose answer somebody waits for, or may."""
        own = {entry.work for entry in self.of_session(scope) if entry.work is not None}
        return {work for work in own if work.origin.scope == scope} | self._taken_works.get(scope, set())

    def bell(self, identity: Identity) -> anyio.Event:
        """Return what is set at the next change of an identical call."""
        return self._bells.setdefault(identity, anyio.Event())

    def ring(self, identity: Identity) -> None:
        bell = self._bells.pop(identity, None)
        if bell is not None:
            bell.set()
