"""`counterfoil tail` shows events with verdicts, for people and as JSON; its exit code says what it saw."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from counterfoil.adapters.gateway.application import Gateway
from counterfoil.adapters.gateway.settings import GatewaySettings
from counterfoil.adapters.serving import serving
from counterfoil.cli import main
from counterfoil.limits import Limits
from counterfoil.model.tokens import Next, VerdictToken
from counterfoil.native import EventId, KeyRing, Scope, StreamToken
from counterfoil.programs.demo.server import build_app
from counterfoil.protocol.continuity import ContinuityClaim, write_claim
from counterfoil.stores.replay.store import ReplayStore
from counterfoil.testing.cuts import Cut
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.link import open_link
from counterfoil.testing.scripted import Wire, open_scripted
from counterfoil.testing.scripted_mcp import ScriptedSession, note

pytestmark = pytest.mark.anyio


async def tail(backend: str, *arguments: str) -> tuple[int, list[str]]:
    code, lines, _ = await tail_with_errors(backend, *arguments)
    return code, lines


async def tail_with_errors(backend: str, *arguments: str) -> tuple[int, list[str], list[str]]:
    done = await anyio.run_process(
        [sys.executable, "-m", "counterfoil", "tail", "--backend", backend, *arguments],
        stderr=subprocess.PIPE,
        check=False,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode, done.stdout.decode().splitlines(), done.stderr.decode().splitlines()


async def test_a_call_that_is_cut_is_shown_with_its_verdict_and_its_answer(
    tmp_path: Path, anyio_backend: str
) -> None:
    cuts = iter([Cut("after-frame", "rst", frames=3)])

    def plan(exchange: Exchange) -> Cut | None:
        return next(cuts, None) if b'"order"' in exchange.body else None

    arguments = json.dumps({"call": "one", "steps": 4, "pause_ms": 20})
    with anyio.fail_after(30):
        async with serving(build_app(tmp_path / "e")) as upstream:
            gateway = Gateway(
                upstream=f"http://127.0.0.1:{upstream}/mcp",
                store=ReplayStore(limits=Limits(), keys=KeyRing.from_secret(bytes(32), made_s=1)),
                settings=GatewaySettings(retry_ms=20),
            )
            async with serving(gateway) as port, open_link(port, plan=plan) as link:
                code, lines = await tail(
                    anyio_backend, f"{link.url}/mcp", "--call", "order", "--arguments", arguments, "--json"
                )
    shown = [json.loads(line) for line in lines]
    assert code == 0
    assert {"verdict": "resumed", "next": "continue"}.items() <= next(
        line for line in shown if line.get("verdict") == "resumed"
    ).items()
    assert shown[-1]["kind"] == "answer"
    assert shown[-1]["result"]["content"][0]["text"] == "receipt for one"


async def test_events_are_lines_for_people(anyio_backend: str) -> None:
    async def play_get(_exchange: Exchange, wire: Wire) -> None:
        await wire.stream()
        for number in (1, 2, 3):
            await wire.event(note(number), event_id=f"e{number}")

    with anyio.fail_after(20):
        async with open_scripted(ScriptedSession(None, play_get)) as server:
            code, lines = await tail(anyio_backend, server.url, "--max-events", "2")
    assert code == 0
    assert lines[0] == "# scripted, revision 2025-11-25"
    assert [line.split()[:2] for line in lines[1:]] == [["standalone", "1"], ["standalone", "2"]]


async def test_a_long_replay_tells_how_far_it_is(anyio_backend: str) -> None:
    ring, scope, epoch = KeyRing.from_secret(bytes(32), made_s=1), Scope(session="s-1"), "AAAAAAAAAAA"
    token = StreamToken.mint(kind="standalone", random=bytes(12))
    chain = ring.digest_chain(scope, stream=token, epoch=epoch)
    digests = [chain.current] + [chain.append(number, data=b"x") for number in range(1, 2_502)]

    def id_of(number: int) -> str:
        return str(ring.event_id(scope, stream=token, epoch=epoch, sequence=number, digest=digests[number]))

    async def play_get(exchange: Exchange, wire: Wire) -> None:
        text = exchange.headers.get("last-event-id")
        after = 0 if text is None else EventId.parse(text).sequence
        claim = ContinuityClaim(
            verdict=VerdictToken.NEW if text is None else VerdictToken.RESUMED,
            next=Next.CONTINUE,
            epoch=epoch,
            after=after,
            digest=digests[after],
            last=None if text is None else 2_501,
        )
        await wire.stream({"stream-continuity": write_claim(claim)})
        for number in range(after + 1, 2 if text is None else 2_502):
            await wire.event(note(number), event_id=id_of(number))
        await (wire.cut() if text is None else anyio.sleep_forever())

    with anyio.fail_after(30):
        async with open_scripted(ScriptedSession(None, play_get)) as server:
            code, lines, told = await tail_with_errors(anyio_backend, server.url, "--max-events", "2501")
    assert code == 0
    assert "# standalone: resumed (claim), next: continue, 2500 missed" in lines
    assert lines[-1].startswith("standalone 2501 ")
    assert told == [f"# standalone: replayed {done} of 2500" for done in (1_000, 2_000, 2_500)]


async def test_a_loss_that_nobody_accepts_ends_with_code_1(anyio_backend: str) -> None:
    session: Any = None

    async def play_get(_exchange: Exchange, wire: Wire) -> None:
        await wire.stream()
        await wire.event(note(1), event_id=str(len(session.gets)))
        await wire.cut()

    session = ScriptedSession(None, play_get)
    with anyio.fail_after(20):
        async with open_scripted(session) as server:
            code, lines = await tail(anyio_backend, server.url)
    assert code == 1
    assert lines[-1].startswith("! the stream 'standalone' is not the one that was read before")


@pytest.mark.parametrize("wrong", [["--header", "nonsense"], ["--arguments", "[1]"]])
def test_a_wrong_argument_is_named(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tail", "http://127.0.0.1:1/mcp", *wrong]) == 2
    assert wrong[0] in capsys.readouterr().err
