"""The parts of a gateway of several workers, one by one; `tests/workers` runs them together."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import anyio
import pytest
from counterfoil.adapters.gateway.config import GatewayConfig, ServeConfig, UpstreamConfig
from counterfoil.adapters.workers.adding_up import add_metrics, add_values
from counterfoil.adapters.workers.orders import VARIABLE, WorkerOrders, read_orders, write_orders
from counterfoil.adapters.workers.supervisor import MOST_FAILURES, Supervisor
from counterfoil.adapters.workers.workers_admin import WorkersFacts
from counterfoil.errors import ConfigError

CONFIG = GatewayConfig(
    upstream=(UpstreamConfig(url="http://127.0.0.1:9/mcp"),), serve=ServeConfig(workers=2, drain_s=0.1)
)


def test_metrics_add_up_by_name_and_labels_and_families_stay_together() -> None:
    one = b'# TYPE a counter\na{x="1"} 1\na{x="2"} 2\n# TYPE s histogram\ns_sum 0.5\n'
    two = b'# TYPE a counter\na{x="2"} 3\na{x="3"} 1\n# TYPE s histogram\ns_sum 0.25\n# TYPE g gauge\ng 7\n'
    assert add_metrics([one, two]).decode().splitlines() == [
        "# TYPE a counter",
        'a{x="1"} 1',
        'a{x="2"} 5',
        'a{x="3"} 1',
        "# TYPE s histogram",
        "s_sum 0.750000",
        "# TYPE g gauge",
        "g 7",
    ]


def test_statuses_add_up_and_what_is_no_number_stays() -> None:
    one = {"ready": True, "store": {"rows": [1, 0], "readers": 2}}
    two = {"ready": False, "store": {"rows": [1, 5], "readers": 1}}
    assert add_values(one, two) == {"ready": True, "store": {"rows": [2, 5], "readers": 3}}
    assert add_values({"store": None}, {"store": {"readers": 1}}) == {"store": {"readers": 1}}


def test_orders_are_read_once_and_foreign_ones_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = WorkerOrders(config=CONFIG, directory="/d", worker=2, incarnation=9, listener=3, lifeline=4)
    assert read_orders() is None
    monkeypatch.setenv(VARIABLE, write_orders(orders))
    assert read_orders() == orders
    assert read_orders() is None  # children of a worker are no workers
    monkeypatch.setenv(VARIABLE, "{}")
    with pytest.raises(ConfigError, match=VARIABLE):
        read_orders()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
def listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


@pytest.mark.anyio
async def test_a_crash_loop_ends_and_says_so(
    folder: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that cannot start (their key file is missing) are tried a few times, then nobody pretends."""
    monkeypatch.setattr("counterfoil.adapters.workers.supervisor.BACKOFF_S", (0.0,))
    serve = ServeConfig(workers=2, drain_s=0.1, keys=str(folder / "missing"))
    config = GatewayConfig(upstream=CONFIG.upstream, serve=serve)
    with listener, anyio.fail_after(60):
        supervisor = Supervisor(config, listener, folder, reread=lambda: config)
        failure = await supervisor.run(lambda: pytest.fail("nobody is ready"))
    assert failure is not None
    assert f"died {MOST_FAILURES} times on end" in failure
    assert not WorkersFacts(supervisor).is_ready


@pytest.mark.anyio
async def test_workers_are_started_again_replaced_and_ended(folder: Path, listener: socket.socket) -> None:
    with listener, anyio.fail_after(60):
        supervisor = Supervisor(CONFIG, listener, folder, reread=lambda: CONFIG)
        facts = WorkersFacts(supervisor)
        ready = anyio.Event()
        ended: list[str | None] = []

        async def run() -> None:
            ended.append(await supervisor.run(ready.set))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await ready.wait()
            assert facts.is_ready
            first, second = supervisor.seats
            life = first.incarnation
            assert first.process is not None
            first.process.send_signal(signal.SIGKILL)
            while first.incarnation == life or not first.is_ready:
                await first.changed.wait()
            assert facts.is_ready  # the other one was there all the time
            lives = [seat.incarnation for seat in supervisor.seats]
            await supervisor.reload()
            assert [seat.incarnation for seat in supervisor.seats] == [(life + 1) & 0xFF for life in lives]
            assert (first.restarts, second.restarts) == (1, 0)
            metrics, status = await facts.report()
            assert b"counterfoil_workers 2\n" in metrics
            assert b"counterfoil_worker_restarts_total 1\n" in metrics
            assert b'"workers":[{"worker":1,' in status
            supervisor.drain()
        assert ended == [None]
        assert all(seat.process is not None and seat.process.returncode == 0 for seat in supervisor.seats)
