"""Cursors of other tenants and of other keys, over HTTP: not a byte of another's stream comes back."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

import anyio
import msgspec
import pytest
from interop.gateways import Gateway
from interop.processes import Orders
from interop.wire import WireSession, open_session

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

TENANTS = 10
BEHIND_PROXY = ("--scope", "header:x-tenant", "--trusted-proxy", "127.0.0.1")


class Tenant(msgspec.Struct, frozen=True):
    session: WireSession
    secret: str
    event_ids: list[str]


class Told(msgspec.Struct, frozen=True):
    """An answer without what the asker said himself: comparable between cursors."""

    status: int
    headers: frozenset[tuple[str, str]]
    body: str


async def make_tenant(port: int, number: int, name: str) -> Tenant:
    """Make one call under request ID 1, as every tenant does, and keep all of its event IDs."""
    session = await open_session(port, {"x-tenant": f"tenant-{number}"})
    secret, event_ids = f"{name}-secret-{number}", []
    async with session.call(1, "order", {"key": secret, "steps": 3, "pause_ms": 1}) as answer:
        while (event := await answer.next_event()) is not None:
            event_ids.append(event.id)
    return Tenant(session, secret, event_ids)


async def ask(tenant: Tenant, cursor: str) -> tuple[Told, bytes]:
    with anyio.fail_after(30):
        async with tenant.session.resume(cursor) as answer:
            raw = await answer.body()
    headers = {(name, value.replace(cursor, "CURSOR")) for name, value in answer.headers.items()}
    kept = frozenset(one for one in headers if one[0] != "date")
    return Told(answer.status, kept, raw.decode().replace(cursor, "CURSOR")), raw


def forge(cursor: str, rng: random.Random) -> str:
    """Change one character of the MAC, which is the last of the tag."""
    prefix, stream, epoch, tag, *rest = cursor.split(".")
    position = rng.randrange(len(tag) - 12, len(tag))
    other = rng.choice([one for one in "ABCDEFGHabcdefgh" if one != tag[position]])
    return ".".join([prefix, stream, epoch, tag[:position] + other + tag[position + 1 :], *rest])


@pytest.fixture
async def tenants(
    orders: Orders, gateways: Callable[..., Gateway], anyio_backend: str, name: str
) -> list[Tenant]:
    gateway = gateways(orders, anyio_backend, *BEHIND_PROXY, name="tenants")
    return [await make_tenant(gateway.port, number, name) for number in range(TENANTS)]


async def test_foreign_and_forged_cursors_are_answered_in_one_form_and_with_nothing_of_others(
    tenants: list[Tenant], scaled: Callable[[int, int], int]
) -> None:
    rng = random.Random(11)
    forms: set[Told] = set()
    elapsed_s: dict[str, list[float]] = {"scope": [], "mac": []}
    for number in range(scaled(300, 10_000)):
        asker, owner = rng.sample(tenants, 2)
        kind = ("scope", "mac")[number % 2]
        cursor = rng.choice(owner.event_ids if kind == "scope" else asker.event_ids)
        began = time.perf_counter()
        told, raw = await ask(asker, cursor if kind == "scope" else forge(cursor, rng))
        elapsed_s[kind].append(time.perf_counter() - began)
        assert not [tenant for tenant in tenants if tenant.secret.encode() in raw], (kind, raw)
        assert b"result" not in raw
        forms.add(told)
    assert len(forms) == 1, forms
    # They took turns, so that a busy machine is busy for both; equal work is what the store's own tests show.
    scope_s, mac_s = (statistics.median(elapsed_s[kind]) for kind in ("scope", "mac"))
    print(f"an answer took {scope_s * 1e3:.2f} ms for a scope and {mac_s * 1e3:.2f} ms for a MAC")
    assert 0.5 < scope_s / mac_s < 2


async def test_stale_cursors_of_another_key_are_told_so_and_give_nothing(
    tenants: list[Tenant],
    orders: Orders,
    gateways: Callable[..., Gateway],
    anyio_backend: str,
    name: str,
    scaled: Callable[[int, int], int],
) -> None:
    strange = gateways(orders, anyio_backend, *BEHIND_PROXY, keys=False, name="strange")
    theirs = await make_tenant(strange.port, 99, name)
    rng = random.Random(12)
    forms: set[Told] = set()
    for _ in range(scaled(50, 1_000)):
        told, raw = await ask(rng.choice(tenants), rng.choice(theirs.event_ids))
        assert b"secret" not in raw
        assert "why=key" in dict(told.headers)["stream-continuity"]
        forms.add(told)
    assert len(forms) == 1, forms
