"""`counterfoil tail URL`: show the events of a live MCP session, with the verdict on every connection.

It reads and reports; it answers no request of the server and applies nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel

from counterfoil.adapters.client.connection import Connection
from counterfoil.adapters.client.inbox import Arrival, Arrivals
from counterfoil.adapters.client.opening import connect
from counterfoil.errors import ConfigError, SessionOver, StreamLost
from counterfoil.model.verdicts import Gap, New, Resumed, ResumeVerdict
from counterfoil.protocol.revisions import LAST_WITH_SESSIONS

PROMISE_BROKEN = 1
#: How often a long replay says how far it is.
PROGRESS_EVERY = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("url", metavar="URL", help="the server's MCP endpoint")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument(
        "--header", action="append", default=[], metavar="NAME:VALUE", help="send a header (may be repeated)"
    )
    parser.add_argument("--session", metavar="ID", help="join this session instead of opening one")
    parser.add_argument(
        "--revision", default=LAST_WITH_SESSIONS.revision, help="MCP revision (default: %(default)s)"
    )
    parser.add_argument(
        "--call", metavar="TOOL", help="call a tool, show its events, and end with its answer"
    )
    parser.add_argument(
        "--arguments", default="{}", metavar="JSON", help="arguments of the tool (default: %(default)s)"
    )
    parser.add_argument("--max-events", type=int, metavar="N", help="end after N events")
    parser.add_argument(
        "--accept-loss", action="store_true", help="go on behind a loss; without it a loss ends with code 1"
    )
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Run until the session ends, the answer is there, or a loss is not accepted."""
    printer = Printer(as_json=arguments.json)
    options = {
        "headers": dict(_read_header(line) for line in arguments.header),
        "session_id": arguments.session,
        "revision": arguments.revision,
        "on_lost_stream": "accept" if arguments.accept_loss else "ask",
    }
    params = {
        "name": arguments.call,
        "arguments": _read_json(arguments.arguments),
        "_meta": {"progressToken": "tail"},
    }
    tail = Tail(printer, params=params if arguments.call else None, max_events=arguments.max_events)
    return anyio.run(tail.follow, arguments.url, options, backend=arguments.backend)


def _read_header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise ConfigError("--header", f"{line!r} is not NAME:VALUE")
    return name.strip(), value.strip()


def _read_json(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ConfigError("--arguments", "is not a JSON object")
    return value


class Tail:
    """Follows one session; returns the exit code."""

    def __init__(self, printer: Printer, *, params: dict[str, Any] | None, max_events: int | None) -> None:
        self._printer = printer
        self._params = params
        self._max_events = max_events
        self._code = 0

    async def follow(self, url: str, options: dict[str, Any]) -> int:
        """Connect, and show what comes until there is an end."""
        connection = connect(url, on_verdict=self._printer.verdict, client_name="counterfoil-tail", **options)
        async with connection:
            self._printer.opened(connection)
            async with connection.deliveries() as deliveries, anyio.create_task_group() as tasks:
                if self._params is not None:
                    tasks.start_soon(self._call, connection, deliveries, tasks.cancel_scope.cancel)
                await self._show(deliveries)
                tasks.cancel_scope.cancel()
        return self._code

    async def _call(self, connection: Connection, deliveries: Arrivals, end: Callable[[], None]) -> None:
        result = await connection.request("tools/call", self._params, deadline_s=24 * 3600)
        while deliveries.waiting:
            await anyio.lowlevel.checkpoint()  # what came before the answer is shown before it
        self._printer.answer(result)
        end()

    async def _show(self, deliveries: Arrivals) -> None:
        seen = 0
        try:
            async for arrival in deliveries:
                self._printer.event(arrival)
                seen += 1
                if seen == self._max_events:
                    return
        except StreamLost as lost:
            self._printer.failure(lost)
            self._code = PROMISE_BROKEN
        except SessionOver as over:
            self._printer.failure(over)


class Printer:
    """Writes lines for people, or one JSON object per line; progress of long replays goes to stderr."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._replaying: dict[str, tuple[int, int]] = {}

    def _line(self, line: str, **fields: object) -> None:
        if self._as_json:
            line = json.dumps({"at": round(time.time(), 3), **fields}, ensure_ascii=False, default=str)
        print(line, flush=True)

    def opened(self, connection: Connection) -> None:
        """Say who answered."""
        name = connection.server.info.get("name", "")
        self._line(
            f"# {name or 'session joined'}, revision {connection.revision}",
            kind="opened",
            server=connection.server.info,
            revision=connection.revision,
        )

    def verdict(self, stream: str, verdict: ResumeVerdict) -> None:
        """Show the verdict on a connection."""
        if isinstance(verdict, Resumed) and verdict.missed:
            self._replaying[stream] = (0, verdict.missed)
        if isinstance(verdict, New) and not self._as_json:
            return
        name = type(verdict).__name__.lower()
        text = f"# {stream}: {name} ({verdict.why}), next: {verdict.next}"
        if isinstance(verdict, Resumed) and verdict.missed is not None:
            text += f", {verdict.missed} missed"
        if isinstance(verdict, Gap) and verdict.first is not None:
            text += f", {verdict.first} to {verdict.last} are lost"
        self._line(
            text, kind="verdict", stream=stream, verdict=name, why=str(verdict.why), next=str(verdict.next)
        )

    def event(self, arrival: Arrival) -> None:
        """Show one event."""
        self._note_progress(arrival.stream)
        text = arrival.data.decode("utf-8", "replace")
        self._line(
            f"{arrival.stream} {arrival.place.position} {text}",
            kind="event",
            stream=arrival.stream,
            position=arrival.place.position,
            event_id=arrival.place.event_id,
            message=json.loads(text) if self._as_json else None,
        )

    def _note_progress(self, stream: str) -> None:
        if stream not in self._replaying:
            return
        done, missed = self._replaying[stream]
        done += 1
        self._replaying[stream] = (done, missed)
        if done >= missed:
            del self._replaying[stream]
        if missed >= PROGRESS_EVERY and (done % PROGRESS_EVERY == 0 or done == missed):
            print(f"# {stream}: replayed {done} of {missed}", file=sys.stderr, flush=True)

    def answer(self, result: object) -> None:
        """Show the answer of the call."""
        text = json.dumps(result, ensure_ascii=False)
        self._line(f"= {text}", kind="answer", result=result)

    def failure(self, error: StreamLost | SessionOver) -> None:
        """Show what ended a stream or the session."""
        self._line(f"! {error}", kind=type(error).__name__, text=str(error))
