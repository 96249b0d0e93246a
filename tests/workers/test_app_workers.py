"""`resumable_app` under `uvicorn --workers N`: no supervisor of ours, and any process answers the same."""

from __future__ import annotations

import os
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
from gateway_kit import Raw


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
    with subprocess.Popen(command, env={**os.environ, "APP_SOCKETS": str(folder)}) as process:
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
