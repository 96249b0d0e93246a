"""Counts what the gateway does, and writes it as Prometheus text; the names are API.

No label has a value that a client chooses.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import msgspec

from counterfoil.adapters.gateway.adoption.adoption_log import AdoptionCounts
from counterfoil.adapters.gateway.resuming.replies import token_of
from counterfoil.model.verdicts import ResumeVerdict
from counterfoil.stores.replay.statistics import ReplayStatistics

#: Upper bounds of the relay histogram, in seconds.
_BOUNDS_S = (0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.05)

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class TakenCounters(Protocol):
    """What peers asked of a process, and what was refused to whoever asked."""

    requests: Counter[str]
    refused: Counter[str]


class PeerCounters(Protocol):
    """What a process asked of its peers, by outcome."""

    counts: Counter[str]

    @property
    def taken(self) -> TakenCounters: ...


@runtime_checkable
class SharedLedger(Protocol):
    """A ledger that several processes share, as far as one of them can say how it stands."""

    @property
    def is_owner(self) -> bool: ...

    @property
    def is_reachable(self) -> bool: ...

    @property
    def waits(self) -> int: ...

    @property
    def counts(self) -> dict[str, int]: ...


class Metrics:
    """The counters of one gateway."""

    def __init__(self) -> None:
        self._resumes: Counter[tuple[str, str]] = Counter()
        self._reader_ends: Counter[str] = Counter()
        self._limit_hits: Counter[str] = Counter()
        self._indeterminate = 0
        self._relays = [0] * (len(_BOUNDS_S) + 1)
        self._relay_s = 0.0

    def note_verdict(self, verdict: ResumeVerdict) -> None:
        self._resumes[token_of(verdict).value, verdict.why.value] += 1

    def note_reader_end(self, reason: str) -> None:
        self._reader_ends[reason] += 1

    def note_limit(self, limit: str) -> None:
        self._limit_hits[limit] += 1

    def note_indeterminate(self) -> None:
        """A call was ended without its answer, and may have run."""
        self._indeterminate += 1

    def note_relay(self, seconds: float, pieces: int = 1) -> None:
        """A piece of an upstream's stream was parsed and appended; it stands for that many."""
        self._relays[bisect_left(_BOUNDS_S, seconds)] += pieces
        self._relay_s += seconds * pieces

    def write(self, store: ReplayStatistics | None, adoption: AdoptionCounts | None = None) -> bytes:
        """Return everything as Prometheus text, with the state of the store as gauges."""
        lines = [
            *_family("resumes_total", "counter", _pairs(("verdict", "why"), self._resumes)),
            *_family("reader_ends_total", "counter", _pairs(("reason",), self._reader_ends)),
            *_family("limit_hits_total", "counter", _pairs(("limit",), self._limit_hits)),
            *_family("indeterminate", "counter", [("", self._indeterminate)]),
            *self._relay_lines(),
        ]
        if adoption is not None:
            events = Counter(msgspec.structs.asdict(adoption))
            lines += _family("adoptions_total", "counter", _pairs(("event",), events))
        if store is not None:
            lines += [
                *_family("window_events", "gauge", [("", store.window_events)]),
                *_family("window_bytes", "gauge", [("", store.window_bytes)]),
                *_family("charged_bytes", "gauge", [("", store.charged_bytes)]),
                *_family("live_streams", "gauge", [("", store.live_streams)]),
                *_family("ended_streams", "gauge", [("", store.ended_streams)]),
                *_family("sessions", "gauge", [("", store.sessions)]),
                *_family("readers", "gauge", [("", store.readers)]),
                *_family("appended_total", "counter", [("", store.appended)]),
                *_family("trimmed_total", "counter", _pairs(("limit",), _trimmed(store))),
                *_family("takeovers_total", "counter", [("", store.taken_over)]),
            ]
        return ("\n".join(lines) + "\n").encode()

    def _relay_lines(self) -> Iterable[str]:
        yield "# TYPE counterfoil_relay_seconds histogram"
        total = 0
        for bound, count in zip((*_BOUNDS_S, "+Inf"), self._relays, strict=True):
            total += count
            yield f'counterfoil_relay_seconds_bucket{{le="{bound}"}} {total}'
        yield f"counterfoil_relay_seconds_sum {self._relay_s:.6f}"
        yield f"counterfoil_relay_seconds_count {total}"


def write_peer_metrics(peers: PeerCounters) -> bytes:
    """Return what passed between the processes of one gateway, as Prometheus text."""
    taken = peers.taken
    lines = [
        *_family("forwards_total", "counter", _pairs(("outcome",), peers.counts)),
        *_family("peer_requests_total", "counter", _pairs(("kind",), taken.requests)),
        *_family("peer_refusals_total", "counter", _pairs(("why",), taken.refused)),
    ]
    return ("\n".join(lines) + "\n").encode()


def write_ledger_metrics(ledger: SharedLedger) -> bytes:
    """Return how a ledger that is shared stands; added up, `ledger_owner` is 1 while it has one."""
    lines = [
        *_family("ledger_owner", "gauge", [("", int(ledger.is_owner))]),
        *_family("ledger_reachable", "gauge", [("", int(ledger.is_reachable))]),
        *_family("ledger_waiting", "gauge", [("", ledger.waits)]),
        *_family("ledger_channel_total", "counter", _pairs(("what",), Counter(ledger.counts))),
    ]
    return ("\n".join(lines) + "\n").encode()


def _trimmed(store: ReplayStatistics) -> Counter[str]:
    """Events that left a window, by the bound that they met."""
    return Counter(
        window_events=store.trimmed_events,
        window_bytes=store.trimmed_bytes,
        window_age_s=store.trimmed_age,
        total_bytes=store.trimmed_budget + store.trimmed_at_birth,
    )


def _pairs(names: tuple[str, ...], counts: Counter[tuple[str, str]] | Counter[str]) -> list[tuple[str, int]]:
    pairs = []
    for key, count in sorted(counts.items()):
        values = key if isinstance(key, tuple) else (key,)
        labels = ",".join(f'{name}="{value}"' for name, value in zip(names, values, strict=True))
        pairs.append((f"{{{labels}}}", count))
    return pairs


def _family(name: str, kind: str, values: list[tuple[str, int]]) -> list[str]:
    return [
        f"# TYPE counterfoil_{name} {kind}",
        *(f"counterfoil_{name}{labels} {value}" for labels, value in values),
    ]
