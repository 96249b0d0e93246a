"""What a step of the ledger is told and gives: moments, intents, settlements.

Values only; nothing here reads a book or decides.
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

from counterfoil.model.ledger_keys import LedgerKey, PayloadKey
from counterfoil.model.ledger_rows import LedgerRow, RowKind
from counterfoil.model.ledger_verdicts import Claimed
from counterfoil.model.tokens import OutcomeToken
from counterfoil.native import Scope


class Horizon(msgspec.Struct, frozen=True, kw_only=True):
    """How long a ledger remembers, and how much; times in seconds."""

    row_age_s: float
    tombstone_age_s: float
    open_rows: int
    attempts: int


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """When and by whom a step is done: the time, the owner's fence, the commit it will be part of, its own
    number.

    `untold` and `given_up` are numbers of this owner's earlier steps: those whose callers were told of a
    failure although the disk may have taken them, and intents whose runs are over and could not be settled.
    """

    now: float
    fence: int
    commit: int
    serial: int
    horizon: Horizon
    untold: Container[int] = ()
    given_up: Container[int] = ()


class Intent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What somebody wants to run; `round` is the digest of what answers an earlier question (decision L23).

    `honours_keys` says that the peer has acknowledged our keys, so that a call may be sent to it again.
    `run` names the run among all others: claimed again under it, the right is the same, whoever owns the
    ledger by then.
    """

    scope: Scope
    key: LedgerKey
    kind: RowKind
    label: str = ""
    fingerprint: bytes = b""
    payload_key: PayloadKey | None = None
    round: bytes = b""
    honours_keys: bool = False
    run: bytes = b""


#: Under which keys an intent is stored: its own, its stream's mark, and that of its payload.
IntentKeys = tuple[bytes, bytes | None, bytes | None]


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a run; `result` is the encoded answer or error."""

    outcome: OutcomeToken
    result: bytes | None = None
    why: str = ""
    evidence: str = ""
    note: str = ""
    parked: bool = False


class Begun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run that may begin, and the row that would be its intent."""

    claimed: Claimed
    row: LedgerRow


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What was changed after a restore."""

    doubts: int
    streams: int
