"""Published clients whose gateway dies: the next one ends their calls typed and carries notices on."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from counterfoil.testing.cuts import Cut
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.link import open_link
from interop.environments import PAIRS, on_pairs
from interop.gateways import Gateway, start_gateway
from interop.plans import CutTable, plan_calls, resumptions
from interop.processes import Orders, Server
from interop.runs import Run, check_typed_end, run_client

pytestmark = pytest.mark.anyio

STEPS = 20
#: Every call has an ID by then, and most of its notices before it.
CUT = Cut("after-frame", "rst", frames=4)


class Failover:
    """A route for the link: the first resumption kills the gateway, then all goes to the other."""

    def __init__(self, first: Server, second: Server) -> None:
        self._first = first
        self._second = second
        self._dead = False

    async def __call__(self, exchange: Exchange) -> int:
        if not self._dead and "last-event-id" in exchange.headers:
            self._first.process.kill()
            self._first.process.wait()
            self._dead = True
        return self._second.port if self._dead else self._first.port


def check_notices(run: Run, session: int, key: str) -> None:
    """What was sent while no gateway listened may be lost; the rest came once and in order, to the last."""
    heard = [text for text in run.notices[session] if key in text]
    numbers = [int(match[1]) for text in heard if (match := re.search(r"notice (\d+)", text))]
    assert numbers == sorted(set(numbers)), heard
    assert numbers[-1] == STEPS, heard
    assert not [text for text in run.notices[session] if "☂" in text and key not in text]


@on_pairs(PAIRS)
async def test_calls_end_typed_and_notices_go_on_at_the_next_gateway(
    client: str,
    name: str,
    anyio_backend: str,
    orders: Orders,
    gateways: Callable[..., Gateway],
    shared_keys: list[str],
) -> None:
    plan = plan_calls(
        name, 4, sessions=4, tools=["announce"], steps=STEPS, last_notice=f"notice {STEPS}", linger_s=10
    )
    table = CutTable(dict.fromkeys(plan.keys(), CUT))
    second = gateways(orders, anyio_backend)
    with start_gateway(orders.server, anyio_backend, *shared_keys) as first:
        async with open_link(first.port, plan=table, route=Failover(first, second)) as link:
            run = await run_client(client, f"{link.url}/mcp", plan)
    for call in run.calls.values():
        check_typed_end(call)
        check_notices(run, call.session, call.key)
        assert orders.count_effects(call.key) == 1
    assert resumptions(link)
