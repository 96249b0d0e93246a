"""Who comes back with a token that its server refuses reads nothing of our log, and a new token reads on."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from counterfoil import KeyRing, ReplayStore, resumable_app
from counterfoil.adapters.gateway.arrival.inbound import Inbound
from counterfoil.adapters.gateway.arrival.scopes import Identity, Scopes
from counterfoil.adapters.gateway.wire.upstream_port import header_of
from interop.local import Client, Gate, make_app, run_app

pytestmark = pytest.mark.anyio
CHALLENGE = b'Bearer error="invalid_token"'


class Door:
    """The server's own check of tokens, and its sessions; both can be taken away."""

    def __init__(self, app: Any) -> None:
        self.let_in = {b"Bearer old"}
        self.pings: list[bytes] = []
        self.status: int | None = None
        self.is_away = False
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        token = dict(scope["headers"]).get(b"authorization", b"")
        message = await receive()
        if b'"ping"' in message.get("body", b""):
            self.pings.append(token)
            if self.is_away:
                raise ConnectionError("away")

        async def receive_again() -> Any:
            nonlocal message
            given, message = message, None
            return given if given is not None else await receive()

        status = self.status if token in self.let_in else 401
        if status is None:
            await self._app(scope, receive_again, send)
            return
        headers = [(b"content-type", b"text/plain"), (b"www-authenticate", CHALLENGE)]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"no"})


class Front:
    def __init__(self, **options: Any) -> None:
        self.gate = Gate()
        self.door = Door(make_app("sdk", self.gate))
        store = ReplayStore(keys=KeyRing.random())
        self.app = resumable_app(self.door, store=store, retry_ms=50, **options)

    @asynccontextmanager
    async def cut_call(self) -> AsyncIterator[tuple[Client, str]]:
        """A client whose call was cut, and the id that it has read."""
        with anyio.fail_after(20):
            async with run_app(self.app) as upstream:
                client = Client(upstream)
                client.fields = [(b"authorization", b"Bearer old")]
                await client.initialize()
                async with client.post(client.call(1, "a")) as answer:
                    events = await answer.take(2)
                    await self.gate.of("a")[0].wait()
                self.gate.of("a")[1].set()
                yield client, str(events[-1].id)


async def resume(client: Client, cursor: str, token: bytes) -> tuple[int, list[Any]]:
    client.fields = [(b"authorization", token)]
    async with client.get(cursor) as answer:
        if answer.status != 200:
            assert header_of(answer.headers, b"www-authenticate") == CHALLENGE
            return answer.status, []
        events = await answer.until_answer()
        return 200, [json.loads(event.data) for event in events if event.data]


async def test_a_token_that_was_revoked_reads_nothing_and_a_refreshed_one_reads_on() -> None:
    front = Front(vouch_s=0)
    async with front.cut_call() as (client, cursor):
        front.door.let_in = {b"Bearer new"}
        assert await resume(client, cursor, b"Bearer old") == (401, [])
        status, events = await resume(client, cursor, b"Bearer new")
        assert status == 200
        assert events[-1]["result"]["content"][0]["text"] == "receipt a"
        assert front.door.pings == [b"Bearer old", b"Bearer new"]


async def test_the_session_s_own_stream_is_asked_for_alike() -> None:
    front = Front(vouch_s=0)
    async with front.cut_call() as (client, _):
        front.door.let_in = set()
        async with client.get() as answer:
            assert answer.status == 401


@pytest.mark.parametrize("status", [403, 404])
async def test_a_token_of_somebody_else_is_refused_as_the_server_refuses_it(status: int) -> None:
    """404 is what the SDK says to another user's token; whose session it is goes on undisturbed."""
    front = Front()
    async with front.cut_call() as (client, cursor):
        front.door.let_in |= {b"Bearer other"}
        front.door.status = status
        assert await resume(client, cursor, b"Bearer other") == (status, [])
        front.door.status = None
        assert (await resume(client, cursor, b"Bearer old"))[0] == 200


async def test_a_yes_stands_for_a_while_and_many_streams_ask_one_question() -> None:
    front = Front(vouch_s=60)
    async with front.cut_call() as (client, cursor):
        assert (await resume(client, cursor, b"Bearer old"))[0] == 200
        assert front.door.pings == []  # the call itself was let in just now
        front.door.let_in |= {b"Bearer new"}
        client.fields = [(b"authorization", b"Bearer new")]

        async def come_back() -> None:
            async with client.get(cursor) as answer:
                assert answer.status == 200

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(come_back)
        assert front.door.pings == [b"Bearer new"]


async def test_a_server_that_is_away_refuses_nobody_whom_it_knew_and_vouches_for_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    front = Front(vouch_s=0, hold_s=0.1)
    async with front.cut_call() as (client, cursor):
        front.door.is_away = True
        front.door.let_in |= {b"Bearer new"}
        status, events = await resume(client, cursor, b"Bearer old")
        assert (status, "result" in events[-1]) == (200, True)
        client.fields = [(b"authorization", b"Bearer new")]
        async with client.get(cursor) as answer:
            claim = (header_of(answer.headers, b"stream-continuity") or b"").decode()
            assert "verdict=unverifiable" in claim
            assert "next=retry" in claim
            events = [event for event in await answer.until_answer() if event.data]
            assert events == []
    assert "Bearer" not in caplog.text


async def test_without_a_token_and_with_a_principal_nobody_is_asked() -> None:
    front = Front(vouch_s=0)
    front.door.let_in |= {b""}
    async with front.cut_call() as (client, cursor):
        client.fields = []
        async with client.get(cursor) as answer:
            assert answer.status == 200
        assert front.door.pings == []

    class Known(Scopes):
        def identify(self, inbound: Inbound) -> Identity:
            return Identity(principal="somebody")

    front = Front(vouch_s=0, scope=Known())
    async with front.cut_call() as (client, cursor):
        assert (await resume(client, cursor, b"Bearer old"))[0] == 200
        assert front.door.pings == []


async def test_a_token_that_is_new_to_the_session_adopts_nothing_before_its_server_lets_it_in() -> None:
    front = Front(adopt_return_s=0.001)
    async with front.cut_call() as (client, _):
        client.fields = [(b"authorization", b"Bearer other")]
        async with client.post(client.call(2, "a")) as answer:
            assert answer.status == 401
        front.door.let_in |= {b"Bearer new"}
        client.fields = [(b"authorization", b"Bearer new")]
        async with client.post(client.call(3, "a")) as answer:
            events = await answer.until_answer()
        assert json.loads(events[-1].data)["id"] == 3
        assert front.door.pings == [b"Bearer other", b"Bearer new"]
