"""Runs a plan of calls through one published Python client and prints one JSON line per call; knows no SDK.

`sdk1.py` and `sdk2.py` give it what differs between the majors.  The plan comes as JSON on standard input:
`{url, timeout_s, at_once, last_notice, linger_s, tries, same_session, headers, revision, sessions}`, with a
session being a list of `{key, tool, arguments}`.
With `tries` every call is a naive agent's: after an error or `timeout_s` of silence it makes the same call
again in a new session (`same_session` is for the other language's clients).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import anyio


class Session(Protocol):
    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        timeout_s: float,
        on_progress: Callable[..., Awaitable[None]],
    ) -> dict[str, Any]:
        """Return `{"outcome": "result", "text": ...}` or `{"outcome": "error", "error": {...}}`."""


class Hearing:
    """What a session got outside its calls: notices, and everything that the SDK complained of."""

    def __init__(self, plan: dict[str, Any]) -> None:
        headers, last = plan["headers"], plan["last_notice"]
        #: The revision that a client with a negotiation of its own is to agree on.
        self.revision: str = plan["revision"]
        #: What the client sends with every request, to say whose it is.
        self.headers = headers
        self.notices: list[str] = []
        self.strays: list[str] = []
        self.last_came = anyio.Event()
        self._last = last

    def note(self, text: str) -> None:
        self.notices.append(text)
        if text.endswith(self._last):
            self.last_came.set()


OpenSession = Callable[[str, Hearing], AbstractAsyncContextManager[Session]]


def emit(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


async def run_call(session: Session, call: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    progress: list[list[Any]] = []

    async def on_progress(number: float, total: float | None, message: str | None) -> None:
        progress.append([number, message])

    began = time.monotonic()
    answer: dict[str, Any] = {"outcome": "hung"}
    with anyio.move_on_after(timeout_s + 5):
        answer = await session.call(call["tool"], call["arguments"], timeout_s, on_progress)
    return {"key": call["key"], **answer, "progress": progress, "elapsed_s": time.monotonic() - began}


async def run_session(
    plan: dict[str, Any], number: int, open_session: OpenSession, slots: anyio.Semaphore
) -> None:
    calls = plan["sessions"][number]
    hearing = Hearing(plan)
    answered: set[str] = set()
    failure = "no answer before the session closed"

    async def run_one(session: Session, call: dict[str, Any]) -> None:
        async with slots:
            line = await run_call(session, call, plan["timeout_s"])
        answered.add(call["key"])
        emit({"session": number, **line})

    try:
        async with open_session(plan["url"], hearing) as session:
            async with anyio.create_task_group() as tasks:
                for call in calls:
                    tasks.start_soon(run_one, session, call)
            # Notices come on the standalone stream, later than the answers perhaps.
            with anyio.move_on_after(plan["linger_s"]):
                await hearing.last_came.wait()
    except Exception as error:  # the transport of a session may fail as a whole, with any exception
        failure = repr(leaf_of(error))
    for call in calls:
        if call["key"] not in answered:
            emit(
                {
                    "session": number,
                    "key": call["key"],
                    "outcome": "session lost",
                    "error": {"kind": failure},
                    "progress": [],
                }
            )
    emit({"session": number, "notices": hearing.notices, "strays": hearing.strays})


async def run_agent(plan: dict[str, Any], call: dict[str, Any], open_session: OpenSession) -> dict[str, Any]:
    """Make one call as often as it takes; each try has a session of its own."""
    line: dict[str, Any] = {}
    for number in range(1, plan["tries"] + 1):
        hearing = Hearing(plan)
        line = {"key": call["key"], "outcome": "session lost", "progress": []}
        try:
            async with open_session(plan["url"], hearing) as session:
                with anyio.move_on_after(plan["timeout_s"]):
                    line = await run_call(session, call, plan["timeout_s"])
        except Exception as error:  # the transport of a session may fail as a whole, with any exception
            line.setdefault("error", {"kind": repr(leaf_of(error))})
        line["tries"] = number
        if line["outcome"] == "result":
            break
    return line


async def run_agents(plan: dict[str, Any], open_session: OpenSession) -> None:
    slots = anyio.Semaphore(plan["at_once"])

    async def run_one(number: int, call: dict[str, Any]) -> None:
        async with slots:
            emit({"session": number, **await run_agent(plan, call, open_session)})

    async with anyio.create_task_group() as tasks:
        for number, calls in enumerate(plan["sessions"]):
            for call in calls:
                tasks.start_soon(run_one, number, call)


def leaf_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def run_plan(open_session: OpenSession) -> None:
    plan = json.loads(sys.stdin.read())
    if plan["tries"]:
        await run_agents(plan, open_session)
        return
    slots = anyio.Semaphore(plan["at_once"])
    async with anyio.create_task_group() as tasks:
        for number in range(len(plan["sessions"])):
            tasks.start_soon(run_session, plan, number, open_session, slots)


def main(open_session: OpenSession) -> None:
    anyio.run(run_plan, open_session)
