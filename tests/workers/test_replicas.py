"""Replicas reach each other by TCP: sealed with the key ring, verified before they are believed."""

from __future__ import annotations

import ssl
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import msgspec
import pytest
from counterfoil.adapters.peers.frames import END, Kind, write_frame, write_request
from counterfoil.adapters.peers.lookup import make_lookup
from counterfoil.adapters.peers.members import Replica
from counterfoil.adapters.peers.owners import replica_number
from counterfoil.adapters.peers.peers import Network, PeerPace
from counterfoil.adapters.peers.seals import Seals
from counterfoil.adapters.peers.tls import ServerTls
from counterfoil.adapters.peers.wire import Envelope, Head, Report, Said, write_envelope, write_line
from counterfoil.errors import ConfigError
from counterfoil.native import EventId, KeyRing
from gateway_kit import KEYS, Upstream, in_band
from tls_kit import make_tls
from workers_kit import Held, Worker, Workers, cursor_of, replicas, until

pytestmark = pytest.mark.anyio


async def resumes_over_there(host: Any, held: Held) -> None:
    async with host.clients[0].call(5) as stream:
        first = (await stream.next()).id
        await stream.message()
    async with host.clients[1].get(first) as stream:
        assert 'via="b/1"' in stream.claim
        await stream.message()
        held.go.set()
        assert (await stream.rest())[-1]["result"] == "done"
    await until(lambda: host.each[1].forwards("answered") == 1)


async def test_a_resume_at_the_other_replica_gets_everything(folder: Path) -> None:
    held = Held()
    async with replicas(Upstream(held), folder) as host:
        await resumes_over_there(host, held)
        assert host.each[0].peers.taken.requests["Forwarded"] == 1
        assert not host.each[0].peers.seals.refused


@pytest.fixture
def tls(folder: Path) -> ServerTls:
    return make_tls(folder)


async def test_it_is_carried_by_tls_where_that_is_configured(folder: Path, tls: ServerTls) -> None:
    held = Held()
    async with replicas(Upstream(held), folder, tls=tls) as host:
        await resumes_over_there(host, held)


def port_of(worker: Worker) -> int:
    network = worker.peers._network
    assert network is not None
    (replica,) = worker.peers.members._replicas.values()
    return replica.port


async def say_to(port: int, frame: bytes) -> bytes:
    """Send a frame to a listener for peers, and return the beginning of what it says."""
    async with await anyio.connect_tcp("localhost", port) as stream:
        await stream.send(frame)
        return await stream.receive()


async def test_a_request_without_a_seal_or_with_a_wrong_or_an_old_one_is_refused_and_counted(
    folder: Path,
) -> None:
    async with replicas(Upstream(), folder) as host:
        taker = host.each[0]
        port = port_of(host.each[1])
        place = taker.peers.own.place
        envelope = Envelope(replica=place.replica, worker=1, incarnation=None, request=Report())
        body = write_envelope(envelope)
        other = Seals(KeyRing.from_secret(b"2" * 32, made_s=1), taker.peers.seals._clock)
        late = Seals(KEYS, lambda: taker.peers.seals._clock() - 3600)
        good = host.each[1].peers.seals.make(body)
        tried = [
            ("missing", b"", body),
            ("missing", b"nonsense", body),
            ("key", other.make(body), body),
            ("stale", late.make(body), body),
            ("forged", good, body + b"\0"),
        ]
        for why, seal, sent in tried:
            before = taker.peers.taken.refused[why]
            assert (await say_to(port, write_request(seal, sent))).startswith(b"HTTP/1.1 401 ")
            assert taker.peers.taken.refused[why] == before + 1
        async with httpx2.AsyncClient() as http:
            assert (await http.post(f"http://localhost:{port}/", content=body)).status_code == 401
        answers = [await say_to(port, write_request(good, body)) for _ in range(2)]
        assert [answer[:1] for answer in answers] == [bytes((Kind.LINE,)), b"H"]
        assert taker.peers.taken.refused["replayed"] == 1
        metrics, _ = await taker.gateway.report()
        assert b'counterfoil_peer_refusals_total{why="replayed"} 1\n' in metrics
        assert taker.peers.taken.requests["Report"] == 1


async def test_a_replica_that_is_not_there_is_held_for_and_then_asked_for_later(folder: Path) -> None:
    """Its port is closed, or nobody here knows of it: neither says that its streams are gone."""
    held = Held()
    async with replicas(Upstream(held), folder, pace=PeerPace(hold_s=0.3)) as host:
        async with host.clients[0].call(5) as stream:
            first = (await stream.next()).id
        asking = host.each[1].peers.members
        for found in ({}, {"a": Replica("a", "127.0.0.1", 1)}):
            asking.set_replicas(found)
            began = anyio.current_time()
            async with host.clients[1].get(first) as stream:
                assert "why=store" in stream.claim
                assert "next=retry" in stream.claim
            assert 0.2 < anyio.current_time() - began < 2
        held.go.set()


async def test_another_life_of_a_replica_says_that_the_stream_is_gone(folder: Path) -> None:
    async with replicas(Upstream(), folder) as host:
        own = host.each[0].peers.own
        earlier = msgspec.structs.replace(own, incarnation=own.incarnation - 1)
        cursor = cursor_of(host.clients[0].fields["mcp-session-id"], owner=earlier.number)
        with anyio.fail_after(2):
            async with host.clients[1].get(cursor) as stream:
                (error,) = await stream.rest()
        assert in_band(error)["why"] == "unknown-stream"
        assert error["id"] == 5
        assert not host.each[0].peers.taken.requests["Forwarded"]
        await until(lambda: host.each[1].forwards("gone") == 1)


# --- peers that are not what they should be

Say = Callable[[anyio.abc.SocketStream, str], Awaitable[None]]


async def says_garbage(stream: anyio.abc.SocketStream, cursor: str) -> None:
    await stream.send(b"\0garbage\n")


async def says_yes(stream: anyio.abc.SocketStream, cursor: str) -> None:
    await stream.send(write_frame(Kind.LINE, write_line(Said("yes"))))


async def says_no_verdict(stream: anyio.abc.SocketStream, cursor: str) -> None:
    head = Head(200, ((b"content-type", b"text/event-stream"),))
    await stream.send(write_frame(Kind.LINE, write_line(head)))


async def says_endlessly(stream: anyio.abc.SocketStream, cursor: str) -> None:
    while True:
        await stream.send(write_frame(Kind.LINE, bytes(65_536)))


async def says_that_it_is_endless(stream: anyio.abc.SocketStream, cursor: str) -> None:
    await stream.send(write_frame(Kind.LINE, bytes(65_536))[:1] + b"\xff" * 65_536)


async def says_nothing(stream: anyio.abc.SocketStream, cursor: str) -> None:
    await anyio.sleep_forever()


@asynccontextmanager
async def lying_peer(host: Workers, cursor: str | None, say: Say) -> AsyncIterator[None]:
    """Let the second replica believe that the first one is where something else listens."""
    assert cursor is not None

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            with anyio.move_on_after(5), suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                await stream.receive()
                await say(stream, cursor)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        host.each[1].peers.members.set_replicas({"a": Replica("a", "127.0.0.1", port)})
        with anyio.fail_after(5):
            yield
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    "say",
    [says_garbage, says_yes, says_no_verdict, says_endlessly, says_that_it_is_endless, says_nothing],
)
async def test_a_peer_that_lies_or_stalls_before_its_head_is_as_one_out_of_reach(
    folder: Path, say: Say
) -> None:
    held = Held()
    async with replicas(Upstream(held), folder, pace=PeerPace(hold_s=0.3)) as host:
        async with host.clients[0].call(5) as stream:
            first = (await stream.next()).id
        async with lying_peer(host, first, say), host.clients[1].get(first) as stream:
            assert "next=retry" in stream.claim
            assert (await stream.next()).id == first
        held.go.set()


def resumed_head() -> bytes:
    head = Head(
        200, ((b"content-type", b"text/event-stream"), (b"stream-continuity", b"v=1, verdict=resumed"))
    )
    return write_frame(Kind.LINE, write_line(head))


async def breaks_off(stream: anyio.abc.SocketStream, cursor: str) -> None:
    await stream.send(resumed_head() + write_frame(Kind.BODY, b": comment\n\n"))


async def breaks_a_frame(stream: anyio.abc.SocketStream, cursor: str) -> None:
    await stream.send(resumed_head() + write_frame(Kind.BODY, b": comment\n\n" * 2)[:-3])


async def stalls(stream: anyio.abc.SocketStream, cursor: str) -> None:
    await stream.send(resumed_head() + write_frame(Kind.BODY, b": comment\n\n"))
    await anyio.sleep_forever()


async def goes_on_without_frames(stream: anyio.abc.SocketStream, cursor: str) -> None:
    await stream.send(resumed_head() + b"id: 7\ndata: {}\n\n" * 10)


async def sends_bare_numbers(stream: anyio.abc.SocketStream, cursor: str) -> None:
    await stream.send(resumed_head() + write_frame(Kind.BODY, b"id: 7\ndata: {}\n\n") + END)


async def sends_another_line_end(stream: anyio.abc.SocketStream, cursor: str) -> None:
    body = b"id: %s\ndata: {}\rid: 7\rdata: {}\r\r" % cursor.encode()
    await stream.send(resumed_head() + write_frame(Kind.BODY, body) + END)


async def sends_another_stream(stream: anyio.abc.SocketStream, cursor: str) -> None:
    session = cursor_of("another session", owner=EventId.parse(cursor).stream.owner)
    own = b"id: %s\ndata: {}\n\n" % session.encode()
    await stream.send(resumed_head() + write_frame(Kind.BODY, own) + END)


@pytest.mark.parametrize(
    "say",
    [
        breaks_off,
        breaks_a_frame,
        stalls,
        goes_on_without_frames,
        sends_bare_numbers,
        sends_another_line_end,
        sends_another_stream,
    ],
)
async def test_a_peer_that_lies_or_stalls_behind_its_head_is_cut_off(folder: Path, say: Say) -> None:
    """No event of it passes, and the client sees a break: what it does not have it asks for again."""
    held = Held()
    async with replicas(Upstream(held), folder, pace=PeerPace(hold_s=0.3, stream_silence_s=0.1)) as host:
        async with host.clients[0].call(5) as stream:
            first = (await stream.next()).id
        async with lying_peer(host, first, say), host.clients[1].get(first) as stream:
            assert await stream.rest() == []
            assert not stream.events
        await until(lambda: host.each[1].forwards("cut") == 1)
        held.go.set()


async def test_what_a_peer_sends_without_end_passes_through_and_is_not_kept(folder: Path) -> None:
    """One line of 64 MiB: the client's to bound, and nothing that grows here."""
    held, size = Held(), 64 << 20

    async def says_a_long_line(stream: anyio.abc.SocketStream, cursor: str) -> None:
        await stream.send(resumed_head())
        for _ in range(size >> 20):
            await stream.send(write_frame(Kind.BODY, b"x" * (1 << 20)))

    async with replicas(Upstream(held), folder, pace=PeerPace(hold_s=0.3)) as host:
        async with host.clients[0].call(5) as stream:
            first = (await stream.next()).id
        tracemalloc.start()
        try:
            async with lying_peer(host, first, says_a_long_line), host.clients[1].get(first) as stream:
                seen = 0
                with suppress(httpx2.HTTPError):
                    async for piece in stream._pieces:
                        seen += len(piece)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert seen == size
        assert peak < 16 << 20
        held.go.set()


async def test_a_peer_that_sends_another_stream_is_cut_off(folder: Path) -> None:
    """Nothing of it passes: the client sees a break, and asks again."""
    held = Held()
    async with replicas(Upstream(held), folder, pace=PeerPace(hold_s=0.3)) as host:
        cursors = []
        for number in (5, 6):
            async with host.clients[0].call(number) as stream:
                cursors.append((await stream.next()).id)
        taker = host.each[0].gateway
        honest = taker.answer_forwarded

        async def lying(request: Any, receive: Any, send: Any) -> None:
            other = msgspec.structs.replace(request.inbound, cursor=(cursors[1] or "").encode())
            await honest(msgspec.structs.replace(request, inbound=other), receive, send)

        taker.answer_forwarded = lying  # type: ignore[method-assign]
        async with host.clients[1].get(cursors[0]) as stream:
            assert await stream.rest() == []
            assert not stream.events
        await until(lambda: host.each[1].forwards("cut") == 1)
        held.go.set()


# --- who the peers are


@pytest.mark.parametrize(
    "text",
    [
        "",
        "b",
        "b=",
        "=http://h:1",
        "b=ftp://h:1",
        "b=http://h",
        "b=http://h:1/path",
        "dns:name",
        "dns::7",
        "b=http://h:x",
    ],
)
async def test_what_names_no_replica_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"serve\.peers"):
        make_lookup("a", (text,), tls=ssl.create_default_context)


async def test_replicas_are_read_and_found_by_name() -> None:
    found = await make_lookup("a", ("a=http://h:1", "b=http://[::1]:2"), tls=ssl.create_default_context)()
    assert found == {"b": Replica("b", "::1", 2)}
    by_dns = await make_lookup("10.0.0.9", ("dns:localhost:7000",), tls=ssl.create_default_context)()
    assert by_dns["127.0.0.1"] == Replica("127.0.0.1", "127.0.0.1", 7_000)
    own = await make_lookup("127.0.0.1", ("dns:localhost:7000",), tls=ssl.create_default_context)()
    assert "127.0.0.1" not in own
    assert replica_number("127.0.0.1") != replica_number("10.0.0.9")
    with pytest.raises(ConfigError, match="stands alone"):
        make_lookup("a", ("dns:localhost:7000", "b=http://h:1"), tls=ssl.create_default_context)


async def test_replicas_come_and_go_while_the_gateway_runs(folder: Path) -> None:
    """One that is not known now is out of reach, not gone; what cannot be looked up stays as it was."""
    held = Held()
    async with replicas(Upstream(held), folder, pace=PeerPace(hold_s=0.2)) as host:
        asking = host.each[1].peers
        found = {**asking.members._replicas}
        ((number, known),) = found.items()
        seen: list[Any] = []
        answers: list[Any] = [{}, OSError("no such name"), ConfigError("peers", "no"), {known.name: known}]

        async def find() -> dict[str, Replica]:
            seen.append(answers[0] if len(answers) == 1 else answers.pop(0))
            if isinstance(seen[-1], Exception):
                raise seen[-1]
            return seen[-1]

        async with host.clients[0].call(5) as stream:
            first = (await stream.next()).id
        network = Network(listener=asking._network.listener, find=find, every_s=0.3)  # type: ignore[union-attr]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asking._look_up, network)
            await until(lambda: seen)
            assert len(asking.members.places()) == 1
            async with host.clients[1].get(first) as stream:
                assert "why=store" in stream.claim
                assert "next=retry" in stream.claim
            await until(lambda: len(seen) == 3)
            assert asking.counts["lookup-failed"] == 2
            assert len(asking.members.places()) == 1
            await until(lambda: len(asking.members.places()) == 2)
            tasks.cancel_scope.cancel()
        assert number in asking.members._replicas
        await resumes_from(host, first, held)


async def resumes_from(host: Workers, cursor: str | None, held: Held) -> None:
    async with host.clients[1].get(cursor) as stream:
        assert 'via="b/1"' in stream.claim
        await stream.message()
        held.go.set()
        assert (await stream.rest())[-1]["result"] == "done"


async def test_a_name_is_looked_up_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a headless service every address is a replica, the own one excepted."""
    addresses = [["10.0.0.1", "10.0.0.2"], ["10.0.0.1", "10.0.0.3", "10.0.0.4"], ["10.0.0.1"]]

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        assert (host, port) == ("peers.default.svc", 7_000)
        return [(2, 1, 6, "", (address, port)) for address in addresses.pop(0) for _ in (1, 2)]

    monkeypatch.setattr(anyio, "getaddrinfo", getaddrinfo)
    find = make_lookup("10.0.0.1", ("dns:peers.default.svc:7000",), tls=ssl.create_default_context)
    assert sorted(await find()) == ["10.0.0.2"]
    assert sorted(await find()) == ["10.0.0.3", "10.0.0.4"]
    assert await find() == {}


async def test_what_was_passed_on_once_goes_no_further(folder: Path) -> None:
    """A process that gets a resume from a peer answers it, whoever's stream it may be."""
    async with replicas(Upstream(), folder) as host:
        one, other = host.each
        cursor = cursor_of(host.clients[0].fields["mcp-session-id"], owner=one.peers.own.number)
        passed: list[Any] = []
        honest = one.gateway.answer_forwarded

        async def send_back(request: Any, receive: Any, send: Any) -> None:
            passed.append(request)
            stray = msgspec.structs.replace(
                request.inbound,
                cursor=cursor_of(request.inbound.session, owner=other.peers.own.number).encode(),
            )
            await honest(msgspec.structs.replace(request, inbound=stray), receive, send)

        one.gateway.answer_forwarded = send_back  # type: ignore[method-assign]
        async with host.clients[1].get(cursor) as stream:
            await stream.rest()
        assert [request.via for request in passed] == ["b/1"]
        assert not other.peers.taken.requests["Forwarded"]
        assert not any(one.peers.counts.values())
