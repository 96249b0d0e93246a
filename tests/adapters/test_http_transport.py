"""Joining chunks changes nothing but their number: answers, errors, connections are as in httpx2 itself."""

from __future__ import annotations

import datetime
import ipaddress
import random
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import anyio.streams.tls
import httpx2
import pytest
from counterfoil.adapters.http_transport import JoiningTransport
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

pytestmark = pytest.mark.anyio

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
#: How each request ends: status, body so far, and the error, if one came.
Ending = tuple[int | None, bytes, str | None]


def chunks(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


#: Made once: it is slow to make.
TLS = ssl.create_default_context()
LAST = b"0\r\n\r\n"
SOME = chunks(b"data: 1\n\n", b"x", b"data: 2\r\n\r\n" * 40)
#: What a connection sends for each of the requests on it, and whether it then closes.
ANSWERS: dict[str, tuple[list[bytes], bool]] = {
    "two on one connection": ([CHUNKED + SOME + LAST, CHUNKED + SOME + LAST], False),
    "trailers": ([CHUNKED + SOME + b"0\r\nx-sum: 7\r\n\r\n", CHUNKED + LAST], False),
    "extensions": ([CHUNKED + b'3;a="b";c\r\nabc\r\n2 \t\r\nde\r\n' + LAST], False),
    "digits of every kind": ([CHUNKED + b"00000A\r\n0123456789\r\n" + LAST], False),
    "a length": ([b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n3\r\nabc\r\n!"], False),
    "to the end": ([b"HTTP/1.0 200 OK\r\n\r\n3\r\nabc\r\n"], True),
    "chunks of 1.0": ([b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + SOME + LAST], True),
    "bare line ends": ([b"HTTP/1.1 200 OK\ntransfer-encoding: chunked\n\n" + SOME + LAST], False),
    "an interim answer": ([b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED + SOME + LAST], False),
    "no body": ([b"HTTP/1.1 204 No Content\r\n\r\n", CHUNKED + SOME + LAST], False),
    "cut in a chunk": ([CHUNKED + SOME + b"ff\r\nabc"], True),
    "cut in a size": ([CHUNKED + SOME + b"ff"], True),
    "cut behind a chunk": ([CHUNKED + SOME], True),
    "cut in the head": ([CHUNKED[:30]], True),
    "no size": ([CHUNKED + SOME + b"zz\r\nabc\r\n" + LAST], True),
    "more than its size": ([CHUNKED + SOME + b"3\r\nabcd\r\n" + LAST], True),
    "a size that is cut short": ([CHUNKED + SOME + b"3\r\nabc2\r\nde\r\n" + LAST], True),
    "two codings": ([CHUNKED[:-2] + b"transfer-encoding: gzip\r\n\r\n" + SOME + LAST], True),
    "nothing": ([b""], True),
}


@asynccontextmanager
async def raw_server(answers: Sequence[bytes], *, closes: bool, cuts: random.Random) -> AsyncIterator[str]:
    async def serve(connection: anyio.abc.SocketStream) -> None:
        async with connection:
            for answer in answers:
                request = b""
                while b"\r\n\r\n" not in request:
                    request += await connection.receive()
                places = sorted(cuts.randrange(len(answer) + 1) for _ in range(cuts.randrange(6)))
                for start, end in zip([0, *places], [*places, len(answer)], strict=True):
                    if start < end:
                        await connection.send(answer[start:end])
                        await anyio.sleep(0.001)
            if not closes:
                with anyio.move_on_after(5):
                    await connection.receive()

    async def handle(connection: anyio.abc.SocketStream) -> None:
        try:
            await serve(connection)
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, handle)
        yield f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/"
        tasks.cancel_scope.cancel()


async def endings(url: str, count: int, transport: httpx2.AsyncBaseTransport) -> list[Ending]:
    ended: list[Ending] = []
    async with httpx2.AsyncClient(transport=transport) as client:
        for _ in range(count):
            status, body = None, b""
            try:
                async with client.stream("GET", url) as response:
                    status = response.status_code
                    async for piece in response.aiter_raw():
                        body += piece
            except httpx2.HTTPError as error:
                ended.append((status, body, type(error).__name__))
                break
            ended.append((status, body, None))
    return ended


@pytest.mark.parametrize("name", ANSWERS)
async def test_every_answer_ends_as_with_httpx2s_own_transport(
    name: str, scaled: Callable[[int, int], int]
) -> None:
    answers, closes = ANSWERS[name]
    limits = httpx2.Limits(max_connections=1)
    for seed in range(scaled(2, 60)):
        both = []
        transports = (
            httpx2.AsyncHTTPTransport(limits=limits, verify=TLS),
            JoiningTransport(limits=limits, tls=TLS),
        )
        for transport in transports:
            async with raw_server(answers, closes=closes, cuts=random.Random(seed)) as url:
                with anyio.fail_after(10):
                    both.append(await endings(url, len(answers), transport))
        own, joined = both
        assert joined == own, f"seed {seed}"


async def test_the_chunks_of_a_piece_are_read_as_one() -> None:
    answer = CHUNKED + chunks(*[b"data: %d\n\n" % number for number in range(2_000)]) + LAST
    async with (
        raw_server([answer], closes=False, cuts=random.Random(3)) as url,
        httpx2.AsyncClient(transport=JoiningTransport(limits=httpx2.Limits(), tls=TLS)) as client,
        client.stream("GET", url) as response,
    ):
        pieces = [piece async for piece in response.aiter_raw()]
    assert b"".join(pieces) == b"".join(b"data: %d\n\n" % number for number in range(2_000))
    assert len(pieces) <= 10


async def test_a_head_request_has_no_body_and_the_connection_lives_on() -> None:
    async with (
        raw_server([CHUNKED, CHUNKED + SOME + LAST], closes=False, cuts=random.Random(1)) as url,
        httpx2.AsyncClient(
            transport=JoiningTransport(limits=httpx2.Limits(max_connections=1), tls=TLS)
        ) as client,
    ):
        assert (await client.head(url)).content == b""
        assert (await client.get(url)).content.startswith(b"data: 1\n\nx")


async def test_an_address_where_nobody_listens_is_httpx2s_connect_error() -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with httpx2.AsyncClient(transport=JoiningTransport(limits=httpx2.Limits(), tls=TLS)) as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get(f"http://127.0.0.1:{port}/")


async def test_certificates_named_by_the_environment_are_not_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "absent.pem"))
    async with JoiningTransport(limits=httpx2.Limits()):
        pass


async def test_an_error_of_the_callers_body_is_not_renamed() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"a"
        raise LookupError("mine")

    async with (
        raw_server([CHUNKED + LAST], closes=False, cuts=random.Random(1)) as url,
        httpx2.AsyncClient(transport=JoiningTransport(limits=httpx2.Limits(), tls=TLS)) as client,
    ):
        with pytest.raises(LookupError, match="mine"):
            await client.post(url, content=body())


def write_certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=9))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    own, private = folder / "own.pem", folder / "own.key"
    own.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return own, private


async def test_chunks_are_joined_behind_tls_too(tmp_path: Path) -> None:
    own, private = write_certificate(tmp_path)
    serving, trusting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    serving.load_cert_chain(own, private)
    trusting.load_verify_locations(own)

    async def handle(connection: anyio.abc.ByteStream) -> None:
        async with connection:
            await connection.receive()
            await connection.send(CHUNKED + chunks(*[b"data: x\n\n"] * 500) + LAST)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as plain,
        anyio.create_task_group() as tasks,
    ):
        listener = anyio.streams.tls.TLSListener(plain, serving, standard_compatible=False)
        tasks.start_soon(listener.serve, handle)
        url = f"https://127.0.0.1:{plain.extra(anyio.abc.SocketAttribute.local_port)}/"
        with anyio.fail_after(10):
            async with (
                httpx2.AsyncClient(
                    transport=JoiningTransport(limits=httpx2.Limits(), tls=trusting)
                ) as client,
                client.stream("GET", url) as response,
            ):
                pieces = [piece async for piece in response.aiter_raw()]
        tasks.cancel_scope.cancel()
    assert b"".join(pieces) == b"data: x\n\n" * 500
    assert len(pieces) <= 5
