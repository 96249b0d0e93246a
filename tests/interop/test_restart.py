"""Published clients whose gateway dies: the next one ends their calls typed and carries notices on."""

from __future__ import annotations

import re
from collections.abc import Callable

import anyio
import pytest
from counterfoil.testing.cuts import Cut
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.link import open_link
from interop.environments import PAIRS, on_pairs
from interop.gateways import Gateway, start_gateway
from interop.plans import CutTable, plan_calls, resumptions
from interop.processes import Orders, Server
from interop.runs import Run, check_typed_end, run_client
from interop.wire import WireSession, open_session

pytestmark = pytest.mark.anyio

STEPS = 40
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


async def test_a_stream_that_a_dead_gateway_still_holds_upstream_is_waited_for(
    anyio_backend: str, orders: Orders, gateways: Callable[..., Gateway], shared_keys: list[str], name: str
) -> None:
    """The server answers 409 to the second reader; passed on, it would cost some clients their session."""
    second = gateways(orders, anyio_backend)
    with start_gateway(orders.server, anyio_backend, *shared_keys) as first:
        session = await open_session(first.port)
        moved = WireSession(second.port, session.headers)
        async with session.listen() as held, moved.listen() as waiting:
            assert (held.status, waiting.status) == (200, 200)
            first.process.kill()
            first.process.wait()
            arguments = {"key": name, "steps": STEPS, "pause_ms": 50}
            async with moved.call(1, "announce", arguments) as answer:
                assert answer.status == 200
                with anyio.fail_after(10):
                    while (event := await waiting.next_event()) is not None and name not in event.data:
                        pass
                assert event is not None, "the stream ended"
