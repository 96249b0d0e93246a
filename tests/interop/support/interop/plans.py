"""What the clients are to call, and where the link cuts each call: seeded, so that a failure comes again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, get_args

import msgspec
from counterfoil.testing.cuts import Cut, CutKind, CutPlace, draw_cut
from counterfoil.testing.link import Exchange, Link

STEPS = 5
#: Long enough that two frames are two arrivals for the client, on a busy machine too.
PAUSE_MS = 40


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one run of a client, by session; every call runs in the session of its place."""

    sessions: list[list[dict[str, Any]]]
    at_once: int = 16
    timeout_s: float = 20.0
    last_notice: str = ""
    tries: int = 0
    """Above 0 each call is a naive agent's: made again, so often in all."""
    same_session: bool = False
    """Such an agent makes its call again in the same session."""
    headers: dict[str, str] = {}
    revision: str = "2025-11-25"
    """What a client that negotiates by itself is to agree on."""
    linger_s: float = 0.0
    """After its calls a session stays until a notice ended with `last_notice`, at most so long."""

    def keys(self) -> list[str]:
        return [call["key"] for calls in self.sessions for call in calls]

    def arguments_keys(self) -> list[str]:
        """Return the keys that the server is given: calls that are equal have the same."""
        return [call["arguments"]["key"] for calls in self.sessions for call in calls]

    def to_json(self, url: str) -> bytes:
        return msgspec.json.encode({"url": url, **msgspec.structs.asdict(self)})


def plan_calls(
    name: str,
    count: int,
    *,
    sessions: int,
    tools: Sequence[str] = ("order",),
    steps: int = STEPS,
    pause_ms: int = PAUSE_MS,
    slower_ms: int = 0,
    **options: Any,
) -> Plan:
    """Spread `count` calls of the tools in turn over `sessions` sessions, so that request ids coincide.

    Their keys begin with `name`.  Each session pauses `slower_ms` longer than the one before it.
    """
    spread: list[list[dict[str, Any]]] = [[] for _ in range(sessions)]
    for number in range(count):
        key, tool, session = f"{name}-{number:03}", tools[number % len(tools)], number % sessions
        arguments = {"key": key, "steps": steps, "pause_ms": pause_ms + session * slower_ms}
        spread[session].append({"key": key, "tool": tool, "arguments": arguments})
    return Plan(sessions=spread, **options)


def call_key(exchange: Exchange) -> str | None:
    """Return the key of the tool call that a request carries, or None if it is something else."""
    if exchange.method != "POST":
        return None
    message = json.loads(exchange.body)
    if message.get("method") != "tools/call":
        return None
    return str(message["params"]["arguments"]["key"])


class CutTable:
    """A plan for the link: the response to each call's POST breaks once, at its drawn place."""

    def __init__(self, cuts: dict[str, Cut]) -> None:
        self.cuts = dict(cuts)
        self.made: set[str] = set()

    @classmethod
    def draw(cls, keys: list[str], seed: int, draw: Callable[[random.Random], Cut]) -> CutTable:
        return cls({key: draw(random.Random(f"{seed} {key}")) for key in keys})

    def __call__(self, exchange: Exchange) -> Cut | None:
        key = call_key(exchange)
        if key is None or key in self.made or key not in self.cuts:
            return None
        self.made.add(key)
        return self.cuts[key]


def cut_after_id(rng: random.Random) -> Cut:
    """Draw a cut behind the second whole frame of `STEPS` notes and an answer: clients have an ID there."""
    return _draw_inside(rng, deepest=STEPS - 2)


def cut_after_primed_id(rng: random.Random) -> Cut:
    """The same for a stream with one frame more: the priming event at its start."""
    return _draw_inside(rng, deepest=STEPS - 1)


def _draw_inside(rng: random.Random, *, deepest: int) -> Cut:
    # A connection that breaks after an answer may take the next request with it, which a pool sent on it
    # at that very moment; so that cut has tests of its own, with nothing to follow.
    while (cut := draw_cut(rng, frames=2, deepest=deepest)).place == "after-last":
        pass
    return cut


def cut_after_answer(rng: random.Random) -> Cut:
    """Draw a cut right behind the last byte of the answer."""
    return Cut("after-last", rng.choice(get_args(CutKind)))


def cut_before_id(rng: random.Random) -> Cut:
    """Draw a cut at which the client has no event ID: before the head, in it, or in the first line."""
    how = rng.choice(get_args(CutKind))
    if rng.random() < 0.5:
        return Cut("before-head", how)
    return Cut("at-byte", how, position=rng.randint(1, 100))


def cut_calls(link: Link) -> dict[str, Cut]:
    """Return the calls whose answers were cut off, and where."""
    made = ((call_key(cut.exchange), cut.cut) for cut in link.cuts)
    return {key: cut for key, cut in made if key is not None}


def resumptions(link: Link) -> list[Exchange]:
    """Return the requests that asked to resume a stream."""
    return [one for one in link.exchanges if one.method == "GET" and "last-event-id" in one.headers]


def cut_standalone(rng: random.Random) -> Cut:
    """Draw a cut in or behind one of the first notices of a standalone stream."""
    place: CutPlace = rng.choice(("in-frame", "in-character", "after-frame"))
    return Cut(place, rng.choice(get_args(CutKind)), frames=rng.randint(2, 3), position=rng.randint(1, 60))


def cut_in_answer(rng: random.Random) -> Cut:
    """Draw a cut in the second frame of a stream that holds an ID and then the answer, and nothing else."""
    place: CutPlace = rng.choice(("in-frame", "in-character"))
    return Cut(place, rng.choice(get_args(CutKind)), frames=1, position=rng.randint(1, 60))


class CutAnywhere:
    """Cuts every answer to a call, and some answers to a resume, at a place drawn from the seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def __call__(self, exchange: Exchange) -> Cut | None:
        is_call = exchange.method == "POST" and b'"tools/call"' in exchange.body
        is_resume = exchange.method == "GET" and "last-event-id" in exchange.headers
        if not is_call and not (is_resume and self._random.random() < 0.4):
            return None
        return Cut(
            self._random.choice(get_args(CutPlace)),
            self._random.choice(get_args(CutKind)),
            frames=self._random.randint(0, 5),
            position=self._random.randint(1, 900),
        )


class CutAgain:
    """A plan for the link: every connection of a call breaks in the frame it is at, `times` in all."""

    def __init__(self, times: int) -> None:
        self._left: dict[str, int] = {}
        self._times = times

    def __call__(self, exchange: Exchange) -> Cut | None:
        if call_key(exchange) is None and "last-event-id" not in exchange.headers:
            return None
        session = exchange.headers["mcp-session-id"]
        left = self._left.setdefault(session, self._times)
        self._left[session] = left - 1
        return Cut("in-frame", "rst", frames=2, position=20) if left > 0 else None
