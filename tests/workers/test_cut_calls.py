"""Published clients before two workers, or two replicas that share only keys: every cut call has its result.

The link returns no reconnect to the process that holds the stream, and spreads everything else.
"""

from __future__ import annotations

import os
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
from counterfoil.testing.link import Link, open_link
from interop.conformance import run_conformance
from interop.environments import ALL_PAIRS, CLIENTS, PAIRS
from interop.gateways import Gateway, make_keys, start_gateway
from interop.plans import (
    STEPS,
    CutAgain,
    CutTable,
    Plan,
    call_key,
    cut_after_answer,
    cut_after_id,
    cut_after_primed_id,
    cut_before_id,
    cut_calls,
    cut_in_answer,
    plan_calls,
    resumptions,
)
from interop.processes import Orders, start_everything_server, start_orders
from interop.runs import Run, run_client

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

OF_USERS = ["--principal", "header:x-user", "--trusted-proxy", "127.0.0.1"]
#: One user's many agents leave a session behind at every cut.
OF_USERS += ["--set", "gateway.principal_sessions=4000"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cut")


@pytest.fixture(scope="module")
def orders_of(shared: Path) -> Iterator[Callable[..., Orders]]:
    """Return a function that gives the server with some options; each is started once."""
    running: dict[tuple[str, ...], Orders] = {}
    with ExitStack() as stack:

        def find(*options: str) -> Orders:
            if options not in running:
                effects = shared / f"effects{len(running)}"
                running[options] = stack.enter_context(start_orders(effects, *options))
            return running[options]

        yield find


@pytest.fixture(scope="module")
def orders(orders_of: Callable[..., Orders]) -> Orders:
    return orders_of()


@pytest.fixture(scope="module")
def keys(shared: Path) -> list[str]:
    return make_keys(shared / "keys")


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        return [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(count)
        ]


@pytest.fixture(scope="module")
def replicas(
    orders_of: Callable[..., Orders], keys: list[str]
) -> Iterator[Callable[..., dict[int, Gateway]]]:
    """Return a function that gives two replicas of a backend with more options, by the numbers of names."""
    running: dict[Any, dict[int, Gateway]] = {}
    with ExitStack() as stack:

        def find(backend: str, *more: str, server: tuple[str, ...] = ()) -> dict[int, Gateway]:
            which = (backend, more, server)
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
                    gateway = stack.enter_context(start_gateway(orders_of(*server).server, backend, *options))
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


#: What an agent takes to make its call again.  Between hosts the news of an undelivered call is a race, as
#: `docs/operations.md` says: an agent that is quicker has two effects, and no test may hang on who wins.
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


class Several:
    """Where a link sends what it takes: to two workers behind one port, or to two replicas."""

    def __init__(self, port: int, spread: Spread | None = None) -> None:
        self.port = port
        self.spread = spread

    def check(self, link: Link) -> None:
        """See that no resume of ours came to the process that has its stream."""
        if self.spread is not None:
            ours = [one for one in resumptions(link) if "cf1." in one.headers["last-event-id"]]
            assert self.spread.elsewhere == len(ours)


@pytest.fixture(scope="module")
def several(
    orders_of: Callable[..., Orders], keys: list[str], replicas: Callable[..., dict[int, Gateway]]
) -> Iterator[Callable[..., Several]]:
    """Return a function that gives two processes of a kind before a server; they are started once."""
    with ExitStack() as stack:
        workers: dict[Any, Gateway] = {}

        def find(kind: str, backend: str, *more: str, server: tuple[str, ...] = ()) -> Several:
            if kind == "replicas":
                return Several(0, Spread(replicas(backend, *more, server=server)))
            which = (backend, more, server)
            if which not in workers:
                starting = start_gateway(orders_of(*server).server, backend, *keys, *more, "--workers", "2")
                workers[which] = stack.enter_context(starting)
            return Several(workers[which].port)

        yield find


def on_several(chosen: list[tuple[str, str, str]], *, clients: tuple[str, ...] = CLIENTS) -> Any:
    """Run a test for clients, backends and kinds of processes: those `chosen`, in full all of `clients`."""
    if os.environ.get("COUNTERFOIL_FULL") == "1":
        kinds = ("workers", "replicas")
        chosen = [(*pair, kind) for pair in ALL_PAIRS if pair[0] in clients for kind in kinds]
    return pytest.mark.parametrize(("client", "anyio_backend", "kind"), chosen, indirect=["anyio_backend"])


PY, TS = ("python-2", "asyncio", "workers"), ("typescript-1", "trio", "replicas")


@on_several([(*pair, kind) for pair in PAIRS for kind in ("workers", "replicas")])
async def test_a_call_whose_resume_never_reaches_its_process_ends_in_its_result(
    client: str,
    anyio_backend: str,
    kind: str,
    orders: Orders,
    several: Callable[..., Several],
    scaled: Callable[[int, int], int],
) -> None:
    """Calls and elicitations, whose answers land where they may; one effect each.

    Of two workers the kernel chooses one: there a resume may reach its process.
    """
    host = several(kind, anyio_backend)
    plan = plan_calls(f"{kind}-{client}-{anyio_backend}", scaled(12, 100), sessions=4, tools=("order", "ask"))
    table = CutTable.draw(plan.keys(), seed=3, draw=cut_after_primed_id)
    async with open_link(host.port, plan=table, route=host.spread) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    check_every_call(run, orders)
    assert set(cut_calls(link)) == set(plan.keys())
    assert len(resumptions(link)) >= len(plan.keys()) * 3 // 4
    host.check(link)


@on_several([PY, TS])
async def test_a_call_cut_after_its_answer_asks_for_nothing_more(
    client: str,
    anyio_backend: str,
    kind: str,
    orders: Orders,
    several: Callable[..., Several],
    scaled: Callable[[int, int], int],
) -> None:
    host, count = several(kind, anyio_backend), scaled(8, 25)
    plan = plan_calls(f"answered-{kind}-{client}-{anyio_backend}", count, sessions=count)
    table = CutTable.draw(plan.keys(), seed=5, draw=cut_after_answer)
    async with open_link(host.port, plan=table, route=host.spread) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    # A call that a pool sends on a connection as it breaks never gets to the link: its end is the client's.
    unsent = {key: call for key, call in run.calls.items() if call.outcome != "result"}
    assert not unsent.keys() & cut_calls(link).keys()
    assert len(unsent) <= count // 4
    ended = {key: call for key, call in run.calls.items() if key not in unsent}
    check_every_call(Run(calls=ended, notices=run.notices, strays=run.strays), orders)
    # A standalone stream that ended with its session may be asked for once more by a client that closes.
    cursors = [one.headers["last-event-id"] for one in resumptions(link)]
    assert not [cursor for cursor in cursors if EventId.parse(cursor).stream.kind == "call"]


@on_several([TS])
async def test_a_call_cut_before_its_id_never_gets_a_wrong_answer_or_two_effects(
    client: str,
    anyio_backend: str,
    kind: str,
    orders: Orders,
    several: Callable[..., Several],
    scaled: Callable[[int, int], int],
) -> None:
    host, count = several(kind, anyio_backend), scaled(8, 40)
    plan = plan_calls(f"early-{kind}-{client}-{anyio_backend}", count, sessions=count, timeout_s=5)
    table = CutTable.draw(plan.keys(), seed=4, draw=cut_before_id)
    async with open_link(host.port, plan=table, route=host.spread) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    assert len(cut_calls(link)) == count
    for call in run.calls.values():
        assert call.is_right or call.outcome in ("error", "session lost"), call
        assert call.evidence is None, call
        assert orders.count_effects(call.key) <= 1, call
    assert not run.unexpected_answers()


@on_several([PY, TS])
async def test_a_slow_call_to_a_server_that_answers_with_json_is_resumable_elsewhere_too(
    client: str,
    anyio_backend: str,
    kind: str,
    orders_of: Callable[..., Orders],
    several: Callable[..., Several],
    scaled: Callable[[int, int], int],
) -> None:
    orders = orders_of("--json")
    host = several(kind, anyio_backend, "--set", "gateway.prime_after_ms=30", server=("--json",))
    plan = plan_calls(f"json-{kind}-{client}-{anyio_backend}", scaled(8, 25), sessions=4)
    table = CutTable.draw(plan.keys(), seed=8, draw=cut_in_answer)
    async with open_link(host.port, plan=table, route=host.spread) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    assert set(cut_calls(link)) == set(plan.keys())
    for call in run.calls.values():
        assert call.is_right, call
        assert orders.count_effects(call.key) == 1, call
    assert not run.unexpected_answers()
    host.check(link)


@on_several([TS], clients=("typescript-1", "typescript-2"))
async def test_a_call_cut_five_times_ends_in_its_result(
    client: str, anyio_backend: str, kind: str, orders: Orders, several: Callable[..., Several]
) -> None:
    """Each time it goes on from another process than the one that has its stream."""
    host = several(kind, anyio_backend)
    plan = plan_calls(f"five-{kind}-{client}-{anyio_backend}", 4, sessions=4, steps=12)
    async with open_link(host.port, plan=CutAgain(5), route=host.spread) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    check_every_call(run, orders, steps=12)
    assert len(link.cuts) == 5 * 4
    host.check(link)


# --- agents that know nothing of us, and make a call again that failed, in a new session

AGENTS: dict[str, Any] = {
    "tries": 3,
    "pause_ms": 150,
    "steps": 4,
    "at_once": 64,
    "headers": {"x-user": "alice"},
}


def on_agents(chosen: dict[str, list[Callable[[random.Random], Cut]]]) -> Any:
    """Run a test for agents and places of their cuts: those `chosen`, in full each agent with all of them."""
    draws = [draw for own in chosen.values() for draw in own]
    full = os.environ.get("COUNTERFOIL_FULL") == "1"
    pairs = [(client, draw) for client, own in chosen.items() for draw in (draws if full else own)]
    names = [f"{client}-{draw.__name__}" for client, draw in pairs]

    def mark(test: Any) -> Any:
        on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])
        return on_asyncio(pytest.mark.parametrize(("client", "draw"), pairs, ids=names)(test))

    return mark


async def make_calls(client: str, plan: Plan, orders: Orders, port: int, table: CutTable, **way: Any) -> Run:
    """Have agents make the calls of a plan through a link that cuts, and check what came of them."""
    async with open_link(port, plan=table, **way) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    check_agents(run, orders, link, plan)
    return run


@on_agents({"python-2": [cut_before_id], "python-1": [cut_early]})
async def test_an_agent_whose_next_try_reaches_another_replica_has_one_effect_a_call(
    client: str,
    draw: Callable[[random.Random], Cut],
    anyio_backend: str,
    orders: Orders,
    replicas: Callable[..., dict[int, Gateway]],
    scaled: Callable[[int, int], int],
) -> None:
    gateways = replicas(anyio_backend, *OF_USERS)
    count = scaled(6, 100)
    plan = plan_calls(f"replica-{client}-{draw.__name__}", count, sessions=count, timeout_s=4.0, **AGENTS)
    table = CutTable.draw(plan.keys(), seed=7, draw=draw)
    await make_calls(client, plan, orders, 0, table, route=Apart(gateways))


@on_agents({"python-1": [cut_before_id], "python-2": [cut_early, cut_after_answer]})
async def test_an_agent_that_does_not_wait_has_one_effect_a_call_of_two_workers(
    client: str,
    draw: Callable[[random.Random], Cut],
    anyio_backend: str,
    orders: Orders,
    several: Callable[..., Several],
    scaled: Callable[[int, int], int],
) -> None:
    """It makes its call again at once, and reaches the other worker as often as not."""
    host, count = several("workers", anyio_backend, *OF_USERS), scaled(6, 100)
    plan = plan_calls(f"worker-{client}-{draw.__name__}", count, sessions=count, timeout_s=3.0, **AGENTS)
    table = CutTable.draw(plan.keys(), seed=7, draw=draw)
    await make_calls(client, plan, orders, host.port, table)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("client", ["typescript-1", "typescript-2"])
async def test_an_agent_whose_client_cancels_what_times_out_has_one_effect_too(
    client: str,
    anyio_backend: str,
    orders: Orders,
    several: Callable[..., Several],
    scaled: Callable[[int, int], int],
) -> None:
    """Its cancellation may reach a worker that knows nothing of the call."""
    host, count = several("workers", anyio_backend, *OF_USERS), scaled(4, 100)
    plan = plan_calls(f"cancelling-{client}", count, sessions=count, timeout_s=3.0, **AGENTS)
    table = CutTable.draw(plan.keys(), seed=7, draw=cut_before_id)
    run = await make_calls(client, plan, orders, host.port, table)
    assert all(call.tries >= 2 for call in run.calls.values()), run.calls


def check_agents(run: Run, orders: Orders, link: Link, plan: Plan) -> None:
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
