"""Published clients whose stream is gone: the first answer ends the call, typed, under its own request ID."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.link import open_link
from interop.environments import PAIRS, on_pairs
from interop.gateways import Gateway, start_gateway
from interop.plans import CutTable, cut_after_primed_id, plan_calls, resumptions
from interop.processes import Orders, Server
from interop.runs import check_typed_end, run_client

pytestmark = pytest.mark.anyio


class Hops:
    """A route for the link: resumptions go to gateways that never held the stream, each session to one."""

    def __init__(self, home: Server, *others: Server) -> None:
        self._home = home
        self._others = others
        self._chosen: dict[str, Server] = {}

    async def __call__(self, exchange: Exchange) -> int:
        if "last-event-id" not in exchange.headers:
            return self._home.port
        session = exchange.headers["mcp-session-id"]
        other = self._others[len(self._chosen) % len(self._others)]
        return self._chosen.setdefault(session, other).port


@on_pairs(PAIRS)
async def test_a_gateway_that_never_held_the_stream_ends_the_call_by_its_first_answer(
    client: str, name: str, anyio_backend: str, orders: Orders, gateways: Callable[..., Gateway]
) -> None:
    """Whether it has the key that signed the ID or not."""
    plan = plan_calls(name, 6, sessions=6)
    table = CutTable.draw(plan.keys(), seed=6, draw=cut_after_primed_id)
    home = gateways(orders, anyio_backend)
    sibling = gateways(orders, anyio_backend, name="sibling")
    with start_gateway(orders.server, anyio_backend) as stranger:
        async with open_link(home.port, plan=table, route=Hops(home, sibling, stranger)) as link:
            run = await run_client(client, f"{link.url}/mcp", plan)
    for call in run.calls.values():
        check_typed_end(call)
        assert orders.count_effects(call.key) == 1
    whys = {call.evidence["why"] for call in run.calls.values() if call.evidence is not None}
    assert whys == {"unknown-stream", "key"}
    sessions = [asked.headers["mcp-session-id"] for asked in resumptions(link)]
    assert len(sessions) == len(set(sessions)) == len(plan.keys()), "one GET a call, no second one"
