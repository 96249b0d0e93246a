"""Who is the same caller asking for the same thing, and which calls take no part in adoption."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Hashable

import msgspec

from counterfoil.adapters.gateway.settings import AdoptScope, GatewaySettings, read_adopt_scopes
from counterfoil.model.adoption import Eligible
from counterfoil.native import Scope
from counterfoil.protocol.call_facts import CallFacts
from counterfoil.protocol.revisions import Capabilities
from counterfoil.protocol.unreadable import UNREADABLE

_KNOWN = 10_000
_MAX_TOOLS = 10_000


class AdoptPolicy:
    """The configured scopes: the most specific entry counts."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._default: AdoptScope = settings.adopt_scope if settings.adopt_s > 0 else "off"
        self._scopes = read_adopt_scopes(settings.adopt_scopes) if settings.adopt_s > 0 else {}
        #: Whether there is any call that somebody may take over.
        self.is_on = self._default != "off" or any(scope != "off" for scope in self._scopes.values())

    def scope_of(self, route: str, tool: str) -> AdoptScope:
        """Return who may take over a call of a tool on a route (its path prefix)."""
        if not self._scopes:
            return self._default
        for name in (f"{route}:{tool}", tool, route):
            if name in self._scopes:
                return self._scopes[name]
        return self._default


class ReadOnlyTools:
    """Tools that a server declared `readOnlyHint`, by route and caller; learnt from `tools/list`."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, Scope], set[str]] = OrderedDict()

    def learn(self, route: str, scope: Scope, answer: bytes) -> None:
        """Note what an answer to `tools/list` says; one that cannot be read says nothing."""
        try:
            page = _LIST.decode(answer)
        except UNREADABLE:
            return
        names = self._known.setdefault((route, scope), set())
        self._known.move_to_end((route, scope))
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)
        for tool in page.result.tools:
            if tool.annotations is not None and tool.annotations.read_only_hint and len(names) < _MAX_TOOLS:
                names.add(tool.name)
            else:
                names.discard(tool.name)

    def has(self, route: str, scope: Scope, tool: str) -> bool:
        return bool(self._known) and tool in self._known.get((route, scope), ())


class _Annotations(msgspec.Struct, rename="camel"):
    read_only_hint: bool = False


class _Tool(msgspec.Struct):
    name: str
    annotations: _Annotations | None = None


class _Page(msgspec.Struct):
    tools: list[_Tool]


class _Answer(msgspec.Struct):
    result: _Page


_LIST = msgspec.json.Decoder(_Answer)


def judge_eligibility(policy: AdoptScope, facts: CallFacts, *, is_read_only: bool) -> Eligible:
    """Say whether a call takes part in adoption."""
    if policy == "off":
        return Eligible.OFF
    if facts.given is not None:
        return Eligible.KEYED
    return Eligible.READ_ONLY if is_read_only else Eligible.YES


#: What identical calls have in common: its parts, or their digest where it leaves this process.
Identity = Hashable


def identify_call(
    route: tuple[str, str, bytes], scope: Scope, knows: Capabilities, facts: CallFacts, *, crosses: bool
) -> tuple[object, ...]:
    """Return what identical calls have in common.

    `route` is the prefix, the upstream and the path behind it; `crosses` says that the principal counts, and
    not the session.  Revisions whose results have other shapes are other families (decision L7).
    """
    session = None if crosses else scope.session
    family = "sessions" if knows.has_sessions else "rounds"
    return (*route, scope.tenant, scope.principal, session, family, facts.params)


def digest_identity(parts: tuple[object, ...]) -> bytes:
    """Return what stands for an identity in the ledger, and between processes."""
    return hashlib.blake2b(msgspec.msgpack.encode(parts), digest_size=32).digest()
