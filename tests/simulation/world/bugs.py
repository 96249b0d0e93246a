"""Planted bugs: each undoes one rule of the client or of what it is told, and the simulation must see it.

A bug replaces one function for as long as its context lasts.  None of them is reachable without this file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import msgspec
from counterfoil.decisions import claims, reconnect
from counterfoil.model.events import Identity, Mode, Seen
from counterfoil.model.evidence import Claim, Echo, First, Progress, Session
from counterfoil.model.tokens import Next, Why
from counterfoil.model.verdicts import Fresh, Pending, Resumed
from counterfoil.native import Cursor
from counterfoil.protocol.client_stream import cf1_ids, delivery, foreign_ids, gathered, pacing, stream, track
from counterfoil.protocol.client_stream.positions import Positions
from counterfoil.protocol.client_stream.requests import Requests
from counterfoil.protocol.client_stream.stream import ClientStream
from counterfoil.protocol.client_stream.track import Track
from world import servers
from world.ledger_bugs import LEDGER_BUGS

Patches = list[tuple[Any, str, Any]]
_judge, _check = stream.classify_resume, delivery.check_event
_identify_ours, _identify_foreign = cf1_ids.identify, foreign_ids.identify
_first_ours, _first_foreign = cf1_ids.compare_first, foreign_ids.compare_first
_read_cursor = cf1_ids.read_cursor
_replace = msgspec.structs.replace


def _changed_evidence(**rules: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def judge(evidence: Any) -> Any:
        changes = {name: rule(getattr(evidence, name)) for name, rule in rules.items()}
        return _judge(_replace(evidence, **changes))

    return judge


def _swap(table: dict[Any, Any]) -> Callable[[Any], Any]:
    return lambda value: table.get(value, value)


def _identities(table: dict[Identity, Identity]) -> Patches:
    def changed(identify: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(event_id: Any, *args: Any, **kwargs: Any) -> Any:
            found = identify(event_id, *args, **kwargs)
            if found.identity not in table:
                return found
            return found._replace(identity=table[found.identity], cursor=_read_cursor(event_id or ""))

        return wrapper

    return [
        (cf1_ids, "identify", changed(_identify_ours)),
        (foreign_ids, "identify", changed(_identify_foreign)),
    ]


def _silence_is_resumed(evidence: Any) -> Any:
    verdict = _judge(evidence)
    if isinstance(verdict, Pending) and evidence.progress is Progress.WAITED and verdict.why is Why.WAITING:
        return Resumed(evidence=evidence, why=Why.CLAIM, next=Next.CONTINUE, after=None, missed=None)
    return verdict


def _without_epoch(event_id: str) -> Cursor | None:
    found = _read_cursor(event_id)
    return None if found is None else Cursor(found.stream, "AAAAAAAAAAA", found.sequence, found.digest)


def _without_digest(event_id: str) -> Cursor | None:
    found = _read_cursor(event_id)
    return None if found is None else Cursor(found.stream, found.epoch, found.sequence, "AAAAAAAAAAA")


def _everything_is_new(identify: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: identify(*args, **kwargs)._replace(seen=Seen.NEVER)


def _echo_moves_ours(self: Track, echo_id: str) -> None:
    self._take_echo(echo_id)


def _never_spent(budget: Any, **arguments: Any) -> Any:
    return reconnect.after_failure(reconnect.FULL, **arguments)


def _best_claim(found: Any, cursor: Any, *, event_epoch: Any) -> Any:
    order = list(Claim)
    named = [(claims.name_claim(each, cursor), each.details) for each in found]
    best = min(named, key=lambda each: order.index(each[0]), default=(Claim.ABSENT, None))
    return claims.Counted(*best, ())


def _delivers_what_is_lost(evidence: Any) -> Any:
    if evidence.mode is Mode.RESPONSE_ONLY and not evidence.settles:
        return Fresh(evidence=evidence, why=Why.NEXT_EVENT, next=Next.CONTINUE)
    return _check(evidence)


def _untyped(self: Requests, answered: Any) -> Any:
    return tuple(each for each in self.ids if str(each) in {str(other) for other in answered})


def _echo_of_refusal(cursor: Any) -> list[bytes]:
    return [f"id: {cursor}\ndata:\n\n".encode()]


def _reads_no_beat(self: ClientStream, connection: Any, comment: Any) -> None:
    return None


BUGS: dict[str, Callable[[], Patches]] = {
    "silence is resumed": lambda: [(stream, "classify_resume", _silence_is_resumed)],
    "the epoch is not compared": lambda: [
        (cf1_ids, "read_cursor", _without_epoch),
        (track, "read_cursor", _without_epoch),
    ],
    "the digest is not compared": lambda: [
        (cf1_ids, "read_cursor", _without_digest),
        (track, "read_cursor", _without_digest),
    ],
    "a jump is accepted": lambda: [
        *_identities({Identity.JUMP: Identity.NEXT}),
        (stream, "classify_resume", _changed_evidence(first=_swap({First.BEYOND: First.NEXT}))),
    ],
    "a turn back is accepted": lambda: [
        *_identities({Identity.NOT_ABOVE: Identity.NEXT}),
        (stream, "classify_resume", _changed_evidence(first=_swap({First.BELOW: First.NEXT}))),
    ],
    "a known event runs again": lambda: [
        (cf1_ids, "identify", _everything_is_new(_identify_ours)),
        (foreign_ids, "identify", _everything_is_new(_identify_foreign)),
    ],
    "other bytes at a known place pass": lambda: _identities({Identity.DIFFERENT: Identity.NEXT}),
    "the cursor is what was received": lambda: [(Positions, "cursor", Positions.newest)],
    "an echo moves our cursor": lambda: [(Track, "echo", _echo_moves_ours)],
    "being accepted refills the budget": lambda: [(pacing, "after_failure", _never_spent)],
    "the better claim counts": lambda: [(gathered, "count_claims", _best_claim)],
    "the header decides before the comment": lambda: [
        (stream, "classify_resume", _changed_evidence(progress=_swap({Progress.OPEN: Progress.READ})))
    ],
    "another session passes": lambda: [
        (stream, "classify_resume", _changed_evidence(session=lambda _: Session.SAME))
    ],
    "a guessable overlap is a proof": lambda: [(foreign_ids, "is_unguessable", lambda _: True)],
    "a foreign echo is a proof": lambda: [
        (
            stream,
            "classify_resume",
            lambda e: _judge(_replace(e, first=First.KNOWN) if e.echo is Echo.FOREIGN else e),
        )
    ],
    "overlaps are compared by id alone": lambda: [
        (foreign_ids, "digest_event", lambda *_: "same"),
        (track, "digest_event", lambda *_: "same"),
    ],
    "a lost stream is delivered": lambda: [(delivery, "check_event", _delivers_what_is_lost)],
    "request ids are compared as text": lambda: [(Requests, "among", _untyped)],
    "what may come again is forgotten": lambda: [(Positions, "pin", lambda self, event_id: None)],
    "a short replay passes": lambda: [(Track, "_unless_replay_is_short", lambda self, found: found)],
    "beats are not read": lambda: [(ClientStream, "_compare_position", _reads_no_beat)],
    "a refusal is echoed": lambda: [(servers, "echo_of_refusal", _echo_of_refusal)],
}


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """Run with one bug in place."""
    with contextlib.ExitStack() as stack:
        for target, attribute, replacement in (BUGS | LEDGER_BUGS)[name]():
            stack.enter_context(mock.patch.object(target, attribute, replacement))
        yield
