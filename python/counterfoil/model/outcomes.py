"""How an effect or a request ends: completed, failed, not applied, or indeterminate, and nothing else.

An outcome is recorded once and read many times; it must never be guessed from silence.
"""

from __future__ import annotations

import msgspec

from counterfoil.model.evidence import Evidence
from counterfoil.model.tokens import OutcomeToken, Why


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an effect.

    `completed`: it happened; `body` is the encoded answer, where there is one.
    `failed`: it finally failed; `body` is the encoded JSON-RPC error, or a short text of ours.
    `not_applied`: it certainly did not happen, so its key is free again; `why` says how that is known.
    `indeterminate`: it may have happened; `why` and `evidence` go to the operator, and nothing runs it again.
    """

    token: OutcomeToken
    body: bytes | None = None
    why: Why | None = None
    evidence: Evidence | None = None

    @property
    def frees_key(self) -> bool:
        """Whether the next call under the same key may run: only after `not_applied`."""
        return self.token is OutcomeToken.NOT_APPLIED
