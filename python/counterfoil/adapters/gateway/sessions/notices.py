"""The notices that tell an unaware client of a lost standalone stream what to look at again.

They go to one connection, without ids, and are stored nowhere.
"""

from __future__ import annotations

import time

import msgspec

from counterfoil.adapters.gateway.sessions.sessions import SessionFacts
from counterfoil.adapters.gateway.settings import GatewaySettings
from counterfoil.native import encode_event

#: By the capability that declares them.
_LISTS = {"tools": "tools", "resources": "resources", "prompts": "prompts"}


def make_notices(facts: SessionFacts, settings: GatewaySettings, *, now_s: float | None = None) -> bytes:
    """Return the frames of the notices, or nothing where they were told less than `notice_every_s` ago."""
    now = time.monotonic() if now_s is None else now_s
    if settings.on_standalone_gap == "refuse" or now - facts.noticed_s < settings.notice_every_s:
        return b""
    facts.noticed_s = now
    frames = b""
    if facts.wants_warnings and facts.capabilities is not None and "logging" in facts.capabilities:
        text = "Notifications of this session may have been lost. Look again at what depends on them."
        frames += _frame("notifications/message", {"level": "warning", "logger": "counterfoil", "data": text})
    if settings.on_standalone_gap == "warn":
        return frames
    for capability, name in _LISTS.items():
        if facts.capabilities is None or capability in facts.capabilities:
            frames += _frame(f"notifications/{name}/list_changed")
    for uri in sorted(facts.resources):
        frames += _frame("notifications/resources/updated", {"uri": uri})
    return frames


def _frame(method: str, params: dict[str, str] | None = None) -> bytes:
    message: dict[str, object] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return encode_event(msgspec.json.encode(message))
