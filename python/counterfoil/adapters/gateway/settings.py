"""What a gateway can be told, as one frozen value with a default for everything.

Names end in their unit.  The program fills it from flags, environment and TOML; `Gateway` takes it whole.
"""

from __future__ import annotations

from typing import Literal, cast, get_args

import msgspec

from counterfoil.adapters.gateway.arrival.guards import LOOPBACK_HOSTS
from counterfoil.errors import ConfigError

OnBudget = Literal["refuse", "relay-unresumable"]
ForeignIds = Literal["reconcile", "stop"]
AdoptScope = Literal["principal", "session", "off"]
OnLedgerFailure = Literal["refuse", "relay-unresumable"]
OnStandaloneGap = Literal["refresh", "warn", "refuse"]


_MAY_BE_ZERO = ("adopt_s", "adopt_settle_ms", "prime_after_ms", "vouch_s", "resume_grace_s")


def read_adopt_scopes(texts: tuple[str, ...]) -> dict[str, AdoptScope]:
    """Read `adopt_scopes`; raises `ConfigError`."""
    scopes: dict[str, AdoptScope] = {}
    for text in texts:
        name, _, scope = text.rpartition("=")
        if not name or scope not in get_args(AdoptScope):
            raise ConfigError(
                "adopt_scopes", f"{text!r} is not TOOL=SCOPE, /route=SCOPE or /route:TOOL=SCOPE"
            )
        scopes[name] = cast(AdoptScope, scope)
    return scopes


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one gateway; raises `ConfigError` for a value that cannot work."""

    prime_after_ms: int = 100
    """How long the upstream's head is waited for before a call's response opens without it."""
    retry_ms: int = 1_000
    """The reconnection time told to clients that know `retry`."""
    beat_s: float = 15.0
    """How long a stream is silent before a comment says that it lives."""
    hold_s: float = 20.0
    """How long a resume that a limit or the store refuses is held before it is answered."""
    write_deadline_s: float = 20.0
    """How long one send to a client may take."""
    body_bytes: int = 4 << 20
    body_deadline_s: float = 30.0
    header_bytes: int = 32 << 10
    """All header fields of a request together."""
    header_field_bytes: int = 8 << 10
    """One of them, name and value."""
    json_depth: int = 64
    """How deep arrays and objects of a request may be nested."""
    json_nodes: int = 100_000
    """How many values a request may hold."""
    answer_bytes: int = 16 << 20
    """The largest JSON answer of an upstream that is kept."""
    error_bytes: int = 64 << 10
    send_bytes: int = 256 << 10
    """Ready frames go out together up to this size."""
    reads_at_once: int = 2_048
    """Open connections that read a stream, all sessions together."""
    holds_at_once: int = 64
    """Resumes that are held before they are answered, all sessions together."""
    session_requests: int = 1_024
    """Requests of one session without an answer, those of batches one by one."""
    principal_sessions: int = 64
    """Sessions that one principal may have in use; one that was silent for `window_age_s` is none."""
    known_sessions: int = 20_000
    """Sessions of which facts are remembered; the longest unused is forgotten first."""
    vouch_s: float = 30.0
    """How long the upstream's yes to an `Authorization` stands, before it is asked again about a reader that
    comes back with it; 0 asks every time.  It is asked only where no principal is configured."""
    notice_every_s: float = 10.0
    """The least time between two notices of one standalone stream's loss."""
    standalone_linger_s: float = 300.0
    """How long the upstream's standalone stream is read with no client attached."""
    cancel_settle_s: float = 5.0
    """How long after a cancellation a call without an answer ends."""
    adopt_s: float = 60.0
    """How long an undelivered call may be taken over by an identical one; 0 switches adoption off."""
    adopt_scope: AdoptScope = "principal"
    """Who may take a call over: its principal from any session (without one: its session), its session, or
    nobody.  `session` is for upstreams that keep state in the session."""
    adopt_scopes: tuple[str, ...] = ()
    """Exceptions: `TOOL=SCOPE`, `/route=SCOPE` or `/route:TOOL=SCOPE`; the most specific one counts."""
    adopt_settle_ms: int = 50
    """How long a call waits beside an identical one in flight, whose disconnect may be on its way."""
    adopt_return_s: float = 5.0
    """How long a client that was given an id is waited for, or three times `retry_ms` if that is longer."""
    adopt_calls: int = 10_000
    """Undelivered calls that are kept for adoption; the one left first is forgotten first."""
    max_revision: str | None = None
    """Answer as a server of this revision: `2025-11-25` makes newer clients use sessions and resumption."""
    resume_grace_s: float = 0.0
    """How long a call is kept whose stream was closed in a revision where that cancels it; events carry ids
    there then, and clients resume by them.  This goes beyond the specification; 0 cancels at once."""
    on_ledger_failure: OnLedgerFailure = "refuse"
    """What becomes of a call without a key whose intent cannot be written; with one it is always refused."""
    on_budget: OnBudget = "refuse"
    foreign_ids: ForeignIds = "reconcile"
    on_standalone_gap: OnStandaloneGap = "refresh"
    observe: bool = False
    """Parse, store and judge, but change no byte."""
    allow_hosts: tuple[str, ...] = LOOPBACK_HOSTS
    allow_origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, bool | str | tuple | None):
                continue
            if value < (0 if name in _MAY_BE_ZERO else 1e-3):
                raise ConfigError(name, f"{value} is too small")
        read_adopt_scopes(self.adopt_scopes)
