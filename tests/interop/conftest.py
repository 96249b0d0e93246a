"""Servers that the tests of this folder share, for starting one takes longer than most tests run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from interop.gateways import Gateway, make_keys, start_gateway
from interop.processes import Orders, start_orders


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("interop")


@pytest.fixture(scope="session")
def orders_for(shared_folder: Path) -> Iterator[Callable[..., Orders]]:
    """Return a function that gives the one test server with the given options."""
    running: dict[tuple[str, ...], Orders] = {}
    with ExitStack() as stack:

        def find(*options: str) -> Orders:
            if options not in running:
                effects = shared_folder / f"effects-{len(running)}"
                running[options] = stack.enter_context(start_orders(effects, *options))
            return running[options]

        yield find


@pytest.fixture
def orders(orders_for: Callable[..., Orders]) -> Orders:
    """The test server as the official SDK serves it by itself: streams, and no store."""
    return orders_for()


@pytest.fixture(scope="session")
def shared_keys(shared_folder: Path) -> list[str]:
    """The option by which gateways sign alike."""
    return make_keys(shared_folder / "keys")


@pytest.fixture(scope="session")
def gateways(shared_keys: list[str]) -> Iterator[Callable[..., Gateway]]:
    """Return a function that gives the one gateway of a name with the given backend, upstream and options."""
    running: dict[tuple[str, ...], Gateway] = {}
    with ExitStack() as stack:

        def find(
            orders: Orders, backend: str, *options: str, name: str = "home", keys: bool = True
        ) -> Gateway:
            which = (name, orders.server.url, backend, *options)
            if which not in running:
                running[which] = stack.enter_context(
                    start_gateway(orders.server, backend, *(shared_keys if keys else ()), *options)
                )
            return running[which]

        yield find


@pytest.fixture
def gateway(gateways: Callable[..., Gateway], orders: Orders, anyio_backend: str) -> Iterator[Gateway]:
    """The gateway in front of `orders`, on this test's backend; it must not complain during the test."""
    found = gateways(orders, anyio_backend)
    yield found
    assert not found.complaints(), "\n".join(found.complaints())


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """What the calls of this test are named by, so that no other test's effects are counted with them."""
    return f"{request.node.callspec.id}-{str(request.node.originalname)[-20:]}"
