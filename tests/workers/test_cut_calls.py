"""Published clients before processes that share nothing but a key file: every cut call ends in its result.

The link returns no reconnect to the process that holds the stream, and spreads everything else.
"""

from __future__ import annotations

import random
import socket
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from counterfoil.adapters.peers.owners import Owner, replica_number
from counterfoil.errors import ForeignEventId
from counterfoil.native import EventId
from counterfoil.testing.cuts import Cut
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.link import open_link
from interop.conformance import run_conformance
from interop.environments import PAIRS, on_pairs
from interop.gateways import Gateway, make_keys, start_gateway
from interop.plans import (
    STEPS,
    CutTable,
    call_key,
    cut_after_id,
    cut_after_primed_id,
    cut_before_id,
    cut_calls,
    plan_calls,
    resumptions,
)
from interop.processes import Orders, start_everything_server, start_orders
from interop.runs import Run, run_client

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

OF_USERS = ["--principal", "header:x-user", "--trusted-proxy", "127.0.0.1"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cut")


@pytest.fixture(scope="module")
def orders(shared: Path) -> Iterator[Orders]:
    with start_orders(shared / "effects") as running:
        yield running


@pytest.fixture(scope="module")
def keys(shared: Path) -> list[str]:
    return make_keys(shared / "keys")


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        return [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(count)
        ]


@pytest.fixture(scope="module")
def replicas(orders: Orders, keys: list[str]) -> Iterator[Callable[..., dict[int, Gateway]]]:
    """Return a function that gives two replicas of a backend with more options, by the numbers of names."""
    running: dict[tuple[str, ...], dict[int, Gateway]] = {}
    with ExitStack() as stack:

        def find(backend: str, *more: str) -> dict[int, Gateway]:
            which = (backend, *more)
            if which not in running:
                ports = dict(zip(("a", "b"), free_ports(2), strict=True))
                peers = ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in ports.items())
                running[which] = {}
                for name, port in ports.items():
                    options = [
                        *keys,
                        *more,
                        "--self",
                        name,
                        "--peers",
                        peers,
                        "--peer-listen",
                        f"127.0.0.1:{port}",
                    ]
                    gateway = stack.enter_context(start_gateway(orders.server, backend, *options))
                    running[which][replica_number(name)] = gateway
            return running[which]

        yield find


class Spread:
    """A route that gives every request to the next gateway, and a resume to any but its stream's owner."""

    def __init__(self, gateways: dict[int, Gateway]) -> None:
        self._ports = {replica: gateway.port for replica, gateway in gateways.items()}
        self._count = 0
        self.elsewhere = 0

    async def __call__(self, exchange: Exchange) -> int:
        self._count += 1
        cursor = exchange.headers.get("last-event-id")
        try:
            owner = Owner.of(EventId.parse(cursor).stream.owner) if cursor is not None else None
        except ForeignEventId:
            owner = None
        if owner is not None:
            self.elsewhere += 1
            return next(port for replica, port in self._ports.items() if replica != owner.place.replica)
        return list(self._ports.values())[self._count % len(self._ports)]


#: What an agent takes to make its call again.  The news that a call is undelivered is a race of milliseconds,
#: as `docs/operations.md` says: an agent that is quicker has two effects, and no test may hang on who wins.
THINKS_S = 0.5


class Apart(Spread):
    """The same, but that a call which is made again goes to another gateway than the time before, later."""

    def __init__(self, gateways: dict[int, Gateway]) -> None:
        super().__init__(gateways)
        self._tries: Counter[str] = Counter()

    async def __call__(self, exchange: Exchange) -> int:
        key = call_key(exchange)
        if key is None:
            return await super().__call__(exchange)
        self._tries[key] += 1
        tries = self._tries[key]
        if tries > 1:
            await anyio.sleep(THINKS_S)
        return list(self._ports.values())[(tries + zlib.crc32(key.encode())) % len(self._ports)]


def cut_early(rng: random.Random) -> Cut:
    """Draw a cut in the first notes, so that the answer is still to come."""
    cut = cut_after_id(rng)
    return Cut(cut.place, cut.how, frames=1, position=cut.position)


def check_every_call(run: Run, orders: Orders, *, steps: int = STEPS) -> None:
    for call in run.calls.values():
        assert call.is_right, call
        assert call.has_all_progress(steps), call
        assert orders.count_effects(call.key) == 1, call
    assert not run.unexpected_answers()


@on_pairs(PAIRS)
async def test_a_call_whose_resume_never_reaches_its_process_ends_in_its_result(
    client: str,
    anyio_backend: str,
    orders: Orders,
    replicas: Callable[..., dict[int, Gateway]],
    scaled: Callable[[int, int], int],
) -> None:
    """Calls and elicitations, whose answers land where they may; one effect each."""
    gateways = replicas(anyio_backend)
    plan = plan_calls(f"r-{client}", scaled(12, 100), sessions=4, tools=("order", "ask"))
    table = CutTable.draw(plan.keys(), seed=3, draw=cut_after_primed_id)
    spread = Spread(gateways)
    async with open_link(0, plan=table, route=spread) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    check_every_call(run, orders)
    assert set(cut_calls(link)) == set(plan.keys())
    assert spread.elsewhere == len(
        [one for one in resumptions(link) if "cf1." in one.headers["last-event-id"]]
    )
    assert spread.elsewhere >= len(plan.keys()) * 3 // 4


@on_pairs(PAIRS)
async def test_a_call_cut_before_two_workers_ends_in_its_result(
    client: str, anyio_backend: str, orders: Orders, keys: list[str], scaled: Callable[[int, int], int]
) -> None:
    plan = plan_calls(f"w-{client}", scaled(12, 100), sessions=4, tools=("order", "ask"))
    table = CutTable.draw(plan.keys(), seed=4, draw=cut_after_primed_id)
    with start_gateway(orders.server, anyio_backend, *keys, "--workers", "2") as gateway:
        async with open_link(gateway.port, plan=table) as link:
            run = await run_client(client, f"{link.url}/mcp", plan)
    check_every_call(run, orders)
    assert set(cut_calls(link)) == set(plan.keys())


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("client", ["python-1", "python-2"])
@pytest.mark.parametrize("draw", [cut_before_id, cut_early], ids=["before its id", "after its id"])
async def test_an_agent_whose_next_try_reaches_another_process_has_one_effect_a_call(
    client: str,
    draw: Callable[[random.Random], Cut],
    anyio_backend: str,
    orders: Orders,
    replicas: Callable[..., dict[int, Gateway]],
    scaled: Callable[[int, int], int],
) -> None:
    """It knows nothing of us, and makes a call again that failed, in a new session."""
    gateways = replicas(anyio_backend, *OF_USERS)
    count = scaled(6, 60)
    options: dict[str, Any] = {"steps": 4, "pause_ms": 150, "at_once": 64, "headers": {"x-user": "alice"}}
    plan = plan_calls(f"a-{client}-{draw.__name__}", count, sessions=count, tries=3, timeout_s=4.0, **options)
    table = CutTable.draw(plan.keys(), seed=7, draw=draw)
    async with open_link(0, plan=table, route=Apart(gateways)) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    assert set(cut_calls(link)) == set(plan.keys())
    for call in run.calls.values():
        assert call.is_right, call
        assert orders.count_effects(call.key) == 1, call


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
def test_two_workers_change_the_result_of_no_check_of_the_conformance_suite(
    anyio_backend: str, tmp_path: Path
) -> None:
    with start_everything_server() as server:
        directly = run_conformance(server.url, tmp_path / "directly")
    with (
        start_everything_server() as server,
        start_gateway(server, anyio_backend, "--workers", "2") as gateway,
    ):
        assert run_conformance(gateway.url, tmp_path / "workers") == directly
    assert directly
