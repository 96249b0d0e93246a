"""One structured line per verdict, and the application's own callback.

No session, cursor or payload is written: a stream is named by a short keyed hash that dies with the process.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable

import msgspec

from counterfoil.adapters.gateway.operation.metrics import Metrics
from counterfoil.adapters.gateway.resuming.replies import token_of
from counterfoil.model.evidence import StoreEvidence
from counterfoil.model.verdicts import ResumeVerdict
from counterfoil.native import StreamToken

OnVerdict = Callable[[ResumeVerdict], None]

_LOGGER = logging.getLogger("counterfoil.gateway")


class VerdictLog:
    """Tells verdicts to the logger `counterfoil.gateway` (INFO, one JSON object) and to `on_verdict`."""

    def __init__(self, metrics: Metrics, on_verdict: OnVerdict | None = None) -> None:
        self._metrics = metrics
        self._on_verdict = on_verdict
        self._salt = secrets.token_bytes(16)

    def tell(self, verdict: ResumeVerdict, stream: StreamToken | None) -> None:
        """Tell one verdict; what the callback raises is the application's own."""
        self._metrics.note_verdict(verdict)
        if _LOGGER.isEnabledFor(logging.INFO):
            _LOGGER.info("%s", self._line(verdict, stream))
        if self._on_verdict is not None:
            self._on_verdict(verdict)

    def _line(self, verdict: ResumeVerdict, stream: StreamToken | None) -> str:
        facts: dict[str, object] = {
            "event": "resume",
            "verdict": token_of(verdict),
            "why": verdict.why,
            "next": verdict.next,
        }
        if isinstance(verdict.evidence, StoreEvidence):
            facts |= {
                name: value
                for name, value in msgspec.structs.asdict(verdict.evidence).items()
                if value is not None
            }
        if stream is not None:
            facts["kind"] = stream.kind
            facts["stream"] = hashlib.blake2b(str(stream).encode(), key=self._salt, digest_size=6).hexdigest()
        return msgspec.json.encode(facts).decode()
