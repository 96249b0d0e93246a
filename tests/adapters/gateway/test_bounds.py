"""Everything is bounded: what is too large, too many or too slow ends typed, and nobody else notices."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest
from counterfoil.adapters.gateway.arrival.scopes import scope_from_header
from counterfoil.adapters.serving import serving
from counterfoil.limits import Limits
from counterfoil.native import EventId
from gateway_kit import Behind, Exchange, Raw, Upstream, in_band, note, scripted

pytestmark = pytest.mark.anyio


async def calm_call(x: Exchange) -> None:
    await x.start()
    await x.note(1)
    await x.result()
    await x.end()


def script(**by_id: Callable[[Exchange], Any]) -> Upstream:
    async def on_call(x: Exchange) -> None:
        await by_id.get(str(x.message["id"]), calm_call)(x)

    return Upstream(on_call)


async def check_unaffected(raw: Raw) -> None:
    async with raw.call(request_id="calm") as stream:
        assert (await stream.rest())[-1]["result"] == "done"


async def test_a_line_that_never_ends_ends_its_call_typed_and_memory_stays_flat() -> None:
    sent = 0

    async def endless(x: Exchange) -> None:
        nonlocal sent
        await x.start()
        await x.note(1)
        await x.send(b"data: ")
        async with anyio.create_task_group() as tasks:

            async def leave() -> None:
                await x.wait_gone()
                tasks.cancel_scope.cancel()

            tasks.start_soon(leave)
            while sent < 200 << 20:
                await x.send(b"x" * 65_536)
                await anyio.lowlevel.checkpoint()  # a server takes what is sent to nobody without waiting
                sent += 65_536

    limits = Limits(line_bytes=1 << 20, event_bytes=1 << 20, window_bytes=1 << 20)
    with anyio.fail_after(20):
        async with scripted(script(big=endless), limits=limits) as (raw, behind):
            async with raw.call(request_id="big") as stream:
                error = (await stream.rest())[-1]
            assert in_band(error)["why"] == "too-large"
            await check_unaffected(raw)
            assert behind.store.statistics().window_bytes < 2 << 20
    assert sent < 100 << 20  # the upstream's exchange was closed, not read to its end


async def test_a_large_answer_passes_whole_and_one_above_the_bound_ends_typed(scaled: Any) -> None:
    sent = {"large": 8 << 20, "larger": scaled(20, 64) << 20}

    async def large(x: Exchange) -> None:
        await x.start()
        size = sent[x.message["id"]]
        await x.send(b'data: {"jsonrpc":"2.0","id":"%s","result":"' % x.message["id"].encode())
        for _ in range(size >> 16):
            await x.send(b"x" * 65_536)
        await x.send(b'"}\n\n')
        await x.end()

    with anyio.fail_after(30):
        async with scripted(script(large=large, larger=large)) as (raw, _):
            async with raw.call(request_id="large") as stream:
                assert len((await stream.rest())[0]["result"]) == 8 << 20
            async with raw.call(request_id="larger") as stream:
                (error,) = await stream.rest()
            assert in_band(error)["why"] == "too-large"
            await check_unaffected(raw)


async def test_a_burst_beyond_the_window_costs_the_window_and_the_answer_still_comes(scaled: Any) -> None:
    count = scaled(20_000, 100_000)

    async def burst(x: Exchange) -> None:
        await x.start()
        one = f"data: {json.dumps(note(1))}\n\n".encode()
        for _ in range(count // 1_000):
            await x.send(one * 1_000)
        await x.result()
        await x.end()

    limits = Limits(window_events=500)
    with anyio.fail_after(60):
        async with scripted(script(burst=burst), limits=limits) as (raw, behind):
            async with raw.call(request_id="burst") as stream:
                cursor = str((await stream.next()).id)
                messages = await stream.rest()
            cursor = str(next((e.id for e in reversed(stream.events) if e.id), cursor))
            answered = any("result" in message for message in messages)
            if not answered:  # it fell out of the window, and says so when it comes back
                async with raw.get(cursor) as again:
                    assert "verdict=gap" in again.claim or "verdict=resumed" in again.claim
                    messages += await again.rest()
            assert messages[-1]["result"] == "done"
            sequences = [EventId(e.id).sequence for e in stream.events if e.id and e.data]
            assert sequences == list(range(1, len(sequences) + 1))  # a prefix, never a hole
            assert behind.store.statistics().window_bytes < 1 << 20
            await check_unaffected(raw)


async def test_a_client_that_never_reads_meets_its_write_deadline_and_the_call_goes_on(
    anyio_backend_name: str,
) -> None:
    done = anyio.Event()

    async def much(x: Exchange) -> None:
        await x.start()
        for number in range(400):
            await x.event({"jsonrpc": "2.0", "method": "notifications/message", "params": "x" * 50_000})
            if number % 20 == 0:
                await anyio.sleep(0.005)
        await x.result()
        await x.end()
        done.set()

    limits = Limits(window_bytes=1 << 20)
    with anyio.fail_after(30):
        async with scripted(script(much=much), limits=limits, write_deadline_s=0.3) as (raw, behind):
            host, port = raw.url.removeprefix("http://").removesuffix("/mcp").split(":")
            body = json.dumps(raw.message("tools/call", {}, "much")).encode()
            fields = {**raw.fields, "host": f"{host}:{port}", "content-length": str(len(body))}
            head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
            async with await anyio.connect_tcp(host, int(port)) as socket:
                await socket.send(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
                await done.wait()  # nobody reads, and the upstream is read to its end
                # Hypercorn shields its sends under trio: there the connection stays until TCP gives it up.
                readers = 1 if anyio_backend_name == "trio" else 0
                for _ in range(300):
                    if behind.store.statistics().readers == readers:
                        break
                    await anyio.sleep(0.02)
                assert behind.store.statistics().readers == readers
                await check_unaffected(raw)
                assert behind.store.statistics().window_bytes < 4 << 20


async def test_a_body_or_head_above_its_bound_is_refused_before_anything_goes_upstream() -> None:
    upstream = Upstream(calm_call)
    async with scripted(upstream, body_bytes=1_000, header_bytes=2_000) as (raw, _):
        assert (await raw.post("tools/call", {"x": "y" * 1_000})).status_code == 413
        assert (await raw.post("tools/call", x_long="y" * 2_000)).status_code == 431
        assert upstream.count("POST", "tools/call") == 0


async def test_cursors_of_other_tenants_and_forged_ones_read_zero_bytes_and_look_alike(scaled: Any) -> None:
    rng = random.Random(5)
    secret = "the secret of tenant"

    async def on_call(x: Exchange) -> None:
        await x.start()
        await x.event({"jsonrpc": "2.0", "method": "notifications/message", "params": f"{secret} 0"})
        await x.result(secret)
        await x.end()

    scope = scope_from_header("x-tenant", trusted_proxies=["127.0.0.1"])
    upstream = Upstream(on_call)
    async with serving(upstream) as port:
        behind = Behind(f"http://127.0.0.1:{port}/mcp", scope=scope)
        async with serving(behind.gateway) as own, httpx2.AsyncClient(timeout=20) as http:
            url = f"http://127.0.0.1:{own}"
            owner = Raw(http, url)
            owner.fields["x-tenant"] = "tenant-0"
            await owner.initialize()
            async with owner.call() as stream:
                await stream.rest()
            cursors = [e.id for e in stream.events if e.id]
            thieves = []
            for number in range(1, 11):
                thief = Raw(http, url)
                thief.fields["x-tenant"] = f"tenant-{number}"
                await thief.initialize()
                thieves.append(thief)
            answers: set[tuple[int, str, str]] = set()
            appended = behind.store.statistics().lookups
            for _ in range(scaled(200, 10_000)):
                thief = rng.choice(thieves)
                cursor = rng.choice(cursors)
                if rng.random() < 0.5:
                    cursor = _flip_tag(cursor, rng)
                fields = thief.fields | {"last-event-id": cursor}
                if rng.random() < 0.5:  # with the owner's session as well
                    fields |= {"mcp-session-id": owner.fields["mcp-session-id"]}
                answer = await http.get(thief.url, headers=fields)
                assert secret not in answer.text
                answers.add(_form(answer))
            assert behind.store.statistics().lookups == appended  # no storage was read
    statuses = {status for status, _, _ in answers}
    assert statuses <= {200, 404}
    forms = {form for form in answers if form[0] == 200}
    assert len(forms) == 1, forms


def _flip_tag(cursor: str, rng: random.Random) -> str:
    prefix, sequence, digest = cursor.rsplit(".", 2)
    at = len(prefix) - rng.randint(1, 10)
    other = "A" if prefix[at] != "A" else "B"
    return f"{prefix[:at]}{other}{prefix[at + 1 :]}.{sequence}.{digest}"


def _form(answer: httpx2.Response) -> tuple[int, str, str]:
    """The answer without the cursor that it repeats and the id that the cursor carries."""
    claim = ",".join(m for m in answer.headers.get("stream-continuity", "").split(", ") if "echo" not in m)
    body = answer.text.partition("\n\n")[2]
    return answer.status_code, claim, body


@pytest.mark.parametrize(
    "head",
    [
        "content-length: 5\r\ntransfer-encoding: chunked\r\n",
        "content-length: 5\r\ncontent-length: 6\r\n",
        "transfer-encoding: chunked, identity\r\n",
        "content-length: +5\r\n",
        "content-length: 5\r\n continued: 1\r\n",
    ],
)
async def test_a_request_that_two_readers_could_end_at_two_places_is_answered_by_a_refusal(head: str) -> None:
    upstream = Upstream(calm_call)
    smuggled = "0\r\n\r\nDELETE /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: session-1\r\n\r\n"
    with anyio.fail_after(10):
        async with scripted(upstream, body_deadline_s=0.3) as (raw, _):
            port = int(raw.url.rsplit(":", 1)[1].split("/")[0])
            async with await anyio.connect_tcp("127.0.0.1", port) as socket:
                await socket.send(f"POST /mcp HTTP/1.1\r\nhost: localhost\r\n{head}\r\n{smuggled}".encode())
                answer = b""
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    while True:
                        answer += await socket.receive()
            assert b" 200 " not in answer
            assert upstream.count("DELETE") == 0
            await check_unaffected(raw)
