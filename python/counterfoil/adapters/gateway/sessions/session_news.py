"""Learns facts of a session from messages that pass: capabilities, subscriptions, the log level.

It changes nothing that passes; what cannot be read is no fact.
"""

from __future__ import annotations

from typing import Any

import msgspec

from counterfoil.adapters.gateway.sessions.sessions import SessionFacts
from counterfoil.adapters.gateway.wire.messages import MessageHead
from counterfoil.errors import LimitExceeded
from counterfoil.native import SseParser
from counterfoil.protocol.unreadable import UNREADABLE

_MAX_BODY_BYTES = 256 << 10
_MAX_RESOURCES = 1_000
#: Methods that say what a session's client wants to be told.
_WISHES = ("resources/subscribe", "resources/unsubscribe", "logging/setLevel")
#: Levels at which a warning is still wanted (RFC 5424, as MCP names them).
_WITH_WARNINGS = ("debug", "info", "notice", "warning")


class InitializeNews:
    """Reads the answer to `initialize` along as it passes."""

    def __init__(self) -> None:
        self._body = bytearray()
        self._is_read = False

    def take(self, piece: bytes, facts: SessionFacts, *, is_stream: bool) -> bool:
        """Note the declared capabilities, before the piece that completes them is passed on; True with it."""
        if self._is_read or len(self._body) > _MAX_BODY_BYTES:
            return False
        self._body += piece
        for data in _messages(bytes(self._body), is_stream=is_stream):
            result = _decoded(data).get("result")
            if isinstance(result, dict) and isinstance(result.get("capabilities"), dict):
                facts.capabilities = frozenset(result["capabilities"])
                self._is_read = True
        return self._is_read


def note_client(facts: SessionFacts, initialize: bytes) -> None:
    """Note the capabilities that a client declared in its `initialize`."""
    params = _decoded(initialize).get("params")
    if isinstance(params, dict) and isinstance(params.get("capabilities"), dict):
        facts.client_capabilities = frozenset(params["capabilities"])


def note_requests(facts: SessionFacts, head: MessageHead, body: bytes) -> bool:
    """Note what requests that were let through say of the session's wishes; False if they say nothing."""
    if not any(each.method in _WISHES for each in head.batch or (head,)):
        return False
    for message in msgspec.json.decode(body) if head.batch else [_decoded(body)]:
        _note_wish(facts, message.get("method"), message.get("params"))
    return True


def _note_wish(facts: SessionFacts, method: Any, params: Any) -> None:
    if method not in _WISHES:
        return
    if not isinstance(params, dict):
        return
    uri, level = params.get("uri"), params.get("level")
    if method == "logging/setLevel" and isinstance(level, str):
        facts.wants_warnings = level in _WITH_WARNINGS
    elif method == "resources/subscribe" and isinstance(uri, str) and len(facts.resources) < _MAX_RESOURCES:
        facts.resources.add(uri)
    elif isinstance(uri, str):
        facts.resources.discard(uri)


def _messages(body: bytes, *, is_stream: bool) -> list[str] | list[bytes]:
    if not is_stream:
        return [body]
    try:
        return [event.data for event in SseParser().feed(body) if event.data]
    except LimitExceeded:
        return []


def _decoded(data: bytes | str) -> dict[str, Any]:
    try:
        message = msgspec.json.decode(data)
    except UNREADABLE:
        return {}
    return message if isinstance(message, dict) else {}
