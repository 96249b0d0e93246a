"""`resumable_app` under `uvicorn --workers N`: no supervisor of ours, and any process answers the same."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx2
import pytest
from counterfoil import ReplayStore, resumable_app
from counterfoil.adapters.peers.directory import SocketDirectory
from counterfoil.adapters.peers.owners import Owner
from counterfoil.adapters.peers.shared_keys import share_keys
from counterfoil.errors import ConfigError
from counterfoil.native import EventId, KeyRing
from gateway_kit import Raw, reading


@pytest.fixture
def served(folder: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "app_under_uvicorn:app",
        "--workers",
        "2",
        "--port",
        str(port),
    ]
    command += ["--app-dir", str(Path(__file__).parent), "--log-level", "error"]
    environment = {**os.environ, "APP_SOCKETS": str(folder), "APP_LEDGER": str(folder / "calls.db")}
    with subprocess.Popen(command, env=environment) as process:
        yield f"http://127.0.0.1:{port}"
        process.terminate()


def test_one_key_is_drawn_and_kept(folder: Path) -> None:
    directory = SocketDirectory(folder)
    assert share_keys(directory) == share_keys(directory)
    assert sorted(path.name for path in folder.iterdir()) == ["keys"]
    assert (folder / "keys").stat().st_mode & 0o777 == 0o600


def test_a_store_of_the_callers_own_cannot_share_that_key(folder: Path) -> None:
    store = ReplayStore(keys=KeyRing.random())
    with pytest.raises(ConfigError, match="sockets"):
        resumable_app(lambda scope, receive, send: None, sockets=folder, store=store)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_session_is_answered_by_its_process_and_resumed_from_any(
    served: str, folder: Path, anyio_backend: str
) -> None:
    directory = SocketDirectory(folder)
    with anyio.fail_after(60):
        while len(directory.lives()) < 2:  # noqa: ASYNC110 files ring no bell
            await anyio.sleep(0.05)
        limits = httpx2.Limits(max_keepalive_connections=0)
        async with httpx2.AsyncClient(timeout=20, limits=limits) as http:
            sessions = [Raw(http, served) for _ in range(4)]
            for client in sessions:
                client.fields["x-user"] = "alice"
                await client.initialize()
            passed_on = 0
            for client in sessions:
                answered = set()
                for number in range(8):
                    async with client.call(number) as stream:
                        cursor = (await stream.next()).id
                        assert cursor is not None
                        owner = Owner.of(EventId.parse(cursor).stream.owner)
                        answered.add(((await stream.rest())[-1]["result"], owner))
                    async with client.get(cursor) as stream:
                        assert (await stream.rest())[-1]["result"] == next(iter(answered))[0]
                        passed_on += "via=" in stream.claim
                assert len(answered) == 1  # wherever they arrived
            assert passed_on  # the kernel spreads connections; of 64 some arrived elsewhere


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_its_processes_share_a_ledger_and_the_next_one_takes_it_over_when_its_owner_is_killed(
    served: str, folder: Path, anyio_backend: str
) -> None:
    """Each process has a server of its own, and what a key stands for is the same in all of them."""
    directory = SocketDirectory(folder)
    with anyio.fail_after(60):
        while len(directory.lives()) < 2:  # noqa: ASYNC110 files ring no bell
            await anyio.sleep(0.05)
        limits = httpx2.Limits(max_keepalive_connections=0)
        async with httpx2.AsyncClient(timeout=20, limits=limits) as http:
            clients: dict[int, Raw] = {}
            while len(clients) < 2:
                client = Raw(http, served)
                client.fields["x-user"] = "alice"
                await client.initialize()
                async with client.call(len(clients)) as stream:
                    clients[(await stream.rest())[-1]["result"]] = client
            for maker, client in clients.items():
                assert await under_key(client, f"of {maker}") == ("detach", maker)
            for client in clients.values():
                for maker in clients:
                    assert await under_key(client, f"of {maker}") == ("stored", maker)
            owner = int((folder / "calls.db-counterfoil-owner").read_text())
            assert owner in clients
            os.kill(owner, signal.SIGKILL)
            (left,) = [client for maker, client in clients.items() if maker != owner]
            for maker in clients:
                assert await under_key(left, f"of {maker}") == ("stored", maker)
            assert (await under_key(left, "new"))[0] == "detach"


async def under_key(client: Raw, key: str) -> tuple[str, int]:
    """Make a call under a key; return what became of it, and which process made it."""
    meta = {"io.counterfoil/call": {"v": 1, "key": key}}
    params = {"name": "t", "arguments": {}, "_meta": meta}
    message = client.message("tools/call", params, 9)
    while True:
        try:
            sent = client.http.stream("POST", client.url, json=message, headers=client.fields)
            async with sent as answer, reading(answer) as stream:
                word = stream.claim.partition("call=")[2].partition(",")[0]
                return word, (await stream.rest())[-1]["result"]
        except httpx2.HTTPError:
            await anyio.sleep(0.05)  # it had reached the process that was killed
