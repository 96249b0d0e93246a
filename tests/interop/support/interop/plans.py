"""What the clients are to call, and where the link cuts each call: seeded, so that a failure comes again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import msgspec
from counterfoil.testing.cuts import Cut, draw_cut
from counterfoil.testing.link import Exchange, Link

STEPS = 5
#: Long enough that two frames are two arrivals for the client, on a busy machine too.
PAUSE_MS = 40


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one run of a client, by session; every call runs in the session of its place."""

    sessions: list[list[dict[str, Any]]]
    at_once: int = 16
    timeout_s: float = 20.0
    notices: int = 0
    linger_s: float = 0.0

    def keys(self) -> list[str]:
        return [call["key"] for calls in self.sessions for call in calls]

    def to_json(self, url: str) -> bytes:
        return msgspec.json.encode({"url": url, **msgspec.structs.asdict(self)})


def plan_calls(
    count: int, *, sessions: int, tool: str = "order", steps: int = STEPS, slower_ms: int = 0, **options: Any
) -> Plan:
    """Spread `count` calls over `sessions` sessions, so that request ids coincide.

    Each session pauses `slower_ms` longer than the one before it.
    """
    spread: list[list[dict[str, Any]]] = [[] for _ in range(sessions)]
    length = "notices" if tool == "announce" else "steps"
    for number in range(count):
        key, session = f"call-{number:03}", number % sessions
        arguments = {"key": key, length: steps, "pause_ms": PAUSE_MS + session * slower_ms}
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
    return draw_cut(rng, frames=2, deepest=STEPS - 2)


def cut_after_primed_id(rng: random.Random) -> Cut:
    """The same for a stream with one frame more: the priming event at its start."""
    return draw_cut(rng, frames=2, deepest=STEPS - 1)


def cut_calls(link: Link) -> dict[str, Cut]:
    """Return the calls that lost their connection before the last byte of the answer, and where."""
    made = ((call_key(cut.exchange), cut.cut) for cut in link.cuts)
    return {key: cut for key, cut in made if key is not None and cut.place != "after-last"}
