"""What a tool call asks of the gateway beyond being passed: a key that is honoured, an answer for adopters.

Reads and refuses; it opens nothing, and sends nothing.
"""

from __future__ import annotations

from counterfoil.adapters.gateway.adoption.front import Adoption
from counterfoil.adapters.gateway.exchanges.exchange import Exchange
from counterfoil.adapters.gateway.keyed.keyed_stream import KeyedStream
from counterfoil.adapters.gateway.streams.batches import BatchStream
from counterfoil.adapters.gateway.streams.recorded_stream import RecordedStream
from counterfoil.adapters.gateway.streams.streams import CallStream
from counterfoil.adapters.gateway.wire.messages import MessageHead
from counterfoil.errors import MalformedCallKey, RequestRefused
from counterfoil.protocol.call_facts import KEY_MEMBER, METHOD, CallFacts, GivenKey, read_call
from counterfoil.protocol.revisions import Capabilities

#: A key that nobody else chooses: 128 bits in base64.
_ANONYMOUS_KEY_CHARS = 22


class Asking:
    """Reads what calls ask for, where keys are honoured (a ledger is there) and where they are not."""

    def __init__(self, adoption: Adoption, *, honours_keys: bool) -> None:
        self._adoption = adoption
        self._honours_keys = honours_keys

    def is_wanted(self, exchange: Exchange, message: MessageHead) -> bool:
        """Whether a call without resumption has a key, or an answer that somebody else may want."""
        if message.method != METHOD:
            return False
        if self._honours_keys and KEY_MEMBER.encode() in exchange.request.body:
            return True
        return exchange.identity.principal is not None and self._adoption.is_on

    def read(self, exchange: Exchange, message: MessageHead) -> CallFacts | None:
        """Read a tool call; a key that nobody can read is refused where keys are honoured."""
        if message.method != METHOD or not (self._honours_keys or self._adoption.is_on):
            return None
        try:
            return read_call(exchange.request.body)
        except MalformedCallKey as malformed:
            if not self._honours_keys:
                return None
            raise RequestRefused(400, "_meta", str(malformed)) from None

    def given(self, asked: CallFacts | None) -> GivenKey | None:
        """Return the key that a call gives, where it is honoured."""
        return asked.given if asked is not None and self._honours_keys else None

    def kind_of(
        self, message: MessageHead, asked: CallFacts | None, given: GivenKey | None
    ) -> type[CallStream]:
        """Return what keeps the answer: of a batch, under a key, after the ledger, or as it comes."""
        if message.batch:
            return BatchStream
        if given is not None:
            return KeyedStream
        return RecordedStream if asked is not None and self._adoption.records else CallStream


def check_key(exchange: Exchange, knows: Capabilities, given: GivenKey) -> None:
    """Refuse a key that another caller may have chosen too, where nothing tells the two apart."""
    has_caller = exchange.identity.principal is not None or (
        knows.has_sessions and exchange.inbound.session is not None
    )
    if not has_caller and len(given.key) < _ANONYMOUS_KEY_CHARS:
        raise RequestRefused(
            400,
            "_meta",
            f"without a session or a principal a key needs {_ANONYMOUS_KEY_CHARS} random characters",
        )
