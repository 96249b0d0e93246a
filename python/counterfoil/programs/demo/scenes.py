"""The demo's scenes: one call each, through a gateway that cannot or must not resume it silently.

Every scene returns what was promised, whether it was kept, and what the client and the gateway saw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import msgspec

from counterfoil.programs.demo.agent import PRINCIPAL_HEADER, Try, open_client, try_tool
from counterfoil.programs.demo.columns import count_lines, label_of
from counterfoil.programs.demo.processes import Child, free_ports, start_child
from counterfoil.testing.cuts import Cut
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.link import Answered, CutMade, Link, open_link

SERVER = "counterfoil.programs.demo.server"
GATEWAY = "counterfoil.programs.demo.gateway"
#: A typed end that comes later than this would be a time-out in disguise.
AT_ONCE_S = 2.0


class Scene(msgspec.Struct, frozen=True):
    """One scene's outcome.  `verdicts` are the gateway's own log lines."""

    name: str
    promise: str
    kept: bool
    seen: str
    verdicts: tuple[dict[str, object], ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    cuts: tuple[CutMade, ...] = ()
    answered: tuple[Answered, ...] = ()


class Stage:
    """What the scenes share: a folder for effects and keys."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys = folder / "demo.keys"

    def keyed_gateway(self, port: int, name: str) -> list[str]:
        """Likewise of one with a ledger, which knows its callers."""
        ledger = ["--ledger", str(self.folder / f"{name}.db")]
        return [*self.gateway_of_users(port), *ledger]

    def gateway_of_users(self, port: int) -> list[str]:
        """Arguments of a gateway that is told whose a request is."""
        principal = ["--principal", f"header:{PRINCIPAL_HEADER}", "--trusted-proxy", "127.0.0.1/32"]
        return [*self.gateway(port), *principal]

    def gateway(self, port: int, *settings: str) -> list[str]:
        """Arguments of a gateway to the server (or link) on `port`."""
        flags = [word for setting in settings for word in ("--set", setting)]
        return [
            "--upstream",
            f"http://127.0.0.1:{port}/mcp",
            "--keys",
            str(self.keys),
            "--retry-ms",
            "50",
            *flags,
        ]


def verdicts_of(children: Sequence[Child]) -> tuple[dict[str, object], ...]:
    """The verdicts on calls in the log lines of gateways."""
    lines = [line for child in children for line in child.log if line.startswith("{")]
    decoded = [msgspec.json.decode(line) for line in lines]
    return tuple(
        line for line in decoded if line.get("event") == "resume" and line.get("kind") != "standalone"
    )


def cut_first_call(place: Cut) -> Callable[[Exchange], Cut | None]:
    """A plan that cuts the first order only."""
    done = False

    def plan(exchange: Exchange) -> Cut | None:
        nonlocal done
        if done or label_of(exchange) is None:
            return None
        done = True
        return place

    return plan


def _told(attempt: Try) -> dict[str, object]:
    """The in-band error that the client's application sees."""
    data = attempt.data if isinstance(attempt.data, dict) else {}
    detail = data.get("io.counterfoil", {})
    return detail if isinstance(detail, dict) else {}


async def play_hop(stage: Stage) -> Scene:
    """Card A: the resume reaches a gateway that never held the stream; the numbers there say nothing."""
    effects = stage.folder / "hop"
    hop = await _hop(stage, effects, ([], []))
    told = _told(hop.attempt)
    kept = (
        hop.attempt.ending == "error"
        and hop.attempt.seconds < AT_ONCE_S
        and (told.get("why"), told.get("executed")) == ("unknown-stream", "unknown")
        and count_lines(effects) == {"hop": 1}
    )
    return hop.scene(
        "the resume reaches a gateway that never held the stream",
        "the call ends at once in a typed error with its own id: executed=unknown, nothing is run again",
        kept,
        f"{hop.attempt.ending} after {hop.attempt.seconds:.2f} s, {_short(told)}",
    )


async def play_hop_among_peers(stage: Stage) -> Scene:
    """The same hop between gateways that know each other: the one that holds the stream is asked."""
    effects = stage.folder / "peers"
    ports = free_ports(2)
    peers = ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in zip("ab", ports, strict=True))
    options = [
        ["--self", name, "--peers", peers, "--peer-listen", f"127.0.0.1:{port}"]
        for name, port in zip("ab", ports, strict=True)
    ]
    hop = await _hop(stage, effects, (options[0], options[1]))
    verdicts = [line.get("verdict") for line in hop.verdicts]
    kept = hop.attempt.ending == "right" and verdicts == ["resumed"] and count_lines(effects) == {"hop": 1}
    return hop.scene(
        "the same with --peers: the resume is passed to the gateway that holds the stream",
        "the call ends in its result, and nothing is run again",
        kept,
        f"{hop.attempt.ending} after {hop.attempt.seconds:.2f} s, verdicts {verdicts}",
    )


class _Hop(msgspec.Struct, frozen=True):
    """What a hop came to."""

    attempt: Try
    verdicts: tuple[dict[str, object], ...]
    exchanges: tuple[Exchange, ...]
    cuts: tuple[CutMade, ...]
    answered: tuple[Answered, ...]

    def scene(self, name: str, promise: str, kept: bool, seen: str) -> Scene:
        return Scene(name, promise, kept, seen, self.verdicts, self.exchanges, self.cuts, self.answered)


async def _hop(stage: Stage, effects: Path, options: tuple[list[str], list[str]]) -> _Hop:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(start_child(SERVER, ["--effects", str(effects)]))
        first, second = [
            await stack.enter_async_context(start_child(GATEWAY, [*stage.gateway(server.port), *more]))
            for more in options
        ]

        async def without_affinity(exchange: Exchange) -> int:
            return second.port if "last-event-id" in exchange.headers else first.port

        plan = cut_first_call(Cut("in-frame", "rst", frames=3, position=40))
        link = await stack.enter_async_context(open_link(first.port, plan=plan, route=without_affinity))
        attempt = await _order(link, "hop")
        verdicts = verdicts_of([first, second])
        return _Hop(attempt, verdicts, tuple(link.exchanges), tuple(link.cuts), tuple(link.answered))


async def play_lost_upstream(stage: Stage) -> Scene:
    """The server dies with the call and another one takes its place, without its memory."""
    effects = stage.folder / "swap"
    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(start_child(SERVER, ["--effects", str(effects)]))
        new = await stack.enter_async_context(start_child(SERVER, ["--effects", str(effects)]))
        upstream = await stack.enter_async_context(open_link(old.port))
        gateway = await stack.enter_async_context(start_child(GATEWAY, stage.gateway(upstream.port)))
        link = await stack.enter_async_context(open_link(gateway.port))

        async def to_new(_exchange: Exchange) -> int:
            return new.port

        async def swap() -> None:
            await _wait_for_call(upstream, "swap")
            await anyio.sleep(0.3)
            upstream.route = to_new
            old.kill()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(swap)
            attempt = await _order(link, "swap", pause_ms=100)
        told = _told(attempt)
        kept = (
            attempt.ending == "error"
            and attempt.seconds < AT_ONCE_S
            and told.get("executed") == "unknown"
            and count_lines(effects) == {"swap": 1}
        )
        return Scene(
            "the server dies in mid-call and comes back without memory",
            "the call ends at once in a typed error: executed=unknown, and the gateway does not run it again",
            kept,
            f"{attempt.ending} after {attempt.seconds:.2f} s, {_short(told)}",
            verdicts_of([gateway]),
            tuple(link.exchanges),
            tuple(link.cuts),
            tuple(link.answered),
        )


async def play_small_window(stage: Stage, *, numbers: int = 1_000, window: int = 200) -> Scene:
    """Card A, second case: more was sent than the window holds, and the numbers would line up."""
    effects = stage.folder / "window"
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(start_child(SERVER, ["--effects", str(effects)]))
        arguments = stage.gateway(server.port, f"limits.window_events={window}")
        gateway = await stack.enter_async_context(start_child(GATEWAY, arguments))

        async def after_the_flood(exchange: Exchange) -> int:
            if "last-event-id" in exchange.headers:
                await anyio.sleep(2.5)  # the client's way back is long; all is sent meanwhile
            return gateway.port

        plan = cut_first_call(Cut("after-frame", "fin", frames=2))
        link = await stack.enter_async_context(open_link(gateway.port, plan=plan, route=after_the_flood))
        async with open_client(f"{link.url}/mcp") as client:
            attempt = await try_tool(
                client,
                "count_up",
                {"call": "window", "numbers": numbers},
                expected=f"counted to {numbers} for window",
                patience_s=8,
            )
        verdicts = verdicts_of([gateway])
        gaps = [line for line in verdicts if line.get("verdict") == "gap"]
        kept = attempt.ending == "right" and len(gaps) == 1 and len(attempt.progress) <= 2
        return Scene(
            f"{numbers} notes were sent while away, and the window holds {window}",
            "the answer still comes, the loss is told as a gap, and nothing is passed off as a continuation",
            kept,
            f"{attempt.ending}, {len(attempt.progress)} notes before the gap and none after it",
            verdicts,
            tuple(link.exchanges),
            tuple(link.cuts),
            tuple(link.answered),
        )


async def _order(link: Link, label: str, *, pause_ms: int = 30) -> Try:
    attempts: list[Try] = []
    async with open_client(f"{link.url}/mcp") as client:
        arguments = {"call": label, "steps": 10, "pause_ms": pause_ms}
        expected = f"receipt for {label}"
        attempts.append(await try_tool(client, "order", arguments, expected=expected, patience_s=6))
    return attempts[0] if attempts else Try("error", "no session", (), 0.0)


async def _wait_for_call(link: Link, label: str) -> None:
    for _ in range(500):
        if any(label_of(exchange) == label for exchange in link.exchanges):
            return
        await anyio.sleep(0.02)


def _short(told: dict[str, object]) -> str:
    named = {name: told.get(name) for name in ("verdict", "why", "executed") if name in told}
    return " ".join(f"{name}={value}" for name, value in named.items()) or "nothing told"
