"""A server's side of one stream, with real ids and frames, and a driver that keeps what it is told."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pytest
from counterfoil.model.stream import RequestRecord, StreamRecord
from counterfoil.model.tokens import Next, StreamKind, VerdictToken, Why
from counterfoil.native import DigestChain, EventId, KeyRing, Scope, StreamToken, encode_event
from counterfoil.protocol.client_stream import ClientStream, inputs
from counterfoil.protocol.client_stream import commands as do
from counterfoil.protocol.client_stream.settings import StreamSettings
from counterfoil.protocol.continuity import (
    CommentKind,
    ConnectionComment,
    ContinuityClaim,
    write_claim,
    write_comment,
)

RING = KeyRing.from_secret(b"k" * 32, made_s=1)
SCOPE = Scope(session="s")
EPOCHS = ("AAAAAAAAAAA", "BBBBBBBBBBA", "CCCCCCCCCCA")
CommandT = TypeVar("CommandT")


def notification(n: int, method: str = "notifications/message") -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": {"n": n}}).encode()


def response(request_id: int | str = 7, result: Any = "done") -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}).encode()


class ServerStream:
    """One stream with our ids: appends events, and gives frames, claims and comments about them."""

    def __init__(self, *, random: bytes = b"r" * 12, epoch: str = EPOCHS[0], kind: str = "call") -> None:
        self.token = StreamToken.mint(kind=kind, random=random)  # type: ignore[arg-type]
        self.epoch = epoch
        self._chain: DigestChain = RING.digest_chain(SCOPE, stream=self.token, epoch=epoch)
        self.digests = [self._chain.current]
        self.frames = [b""]

    @property
    def last(self) -> int:
        return len(self.frames) - 1

    def append(self, data: bytes, *, event: str | None = None) -> bytes:
        sequence = len(self.frames)
        name = None if event is None else event.encode()
        self.digests.append(self._chain.append(sequence, event=name, data=data))
        self.frames.append(encode_event(data, event=event, id=str(self.id(sequence))))
        return self.frames[-1]

    def id(self, sequence: int) -> EventId:
        digest = self.digests[sequence]
        return RING.event_id(SCOPE, stream=self.token, epoch=self.epoch, sequence=sequence, digest=digest)

    def echo(self, sequence: int, *, retry: int | None = None) -> bytes:
        return encode_event(b"", id=str(self.id(sequence)), retry=retry)

    def claim(self, verdict: VerdictToken, *, after: int | None = None, **members: Any) -> ContinuityClaim:
        digest = None if after is None else self.digests[after]
        members.setdefault("epoch", self.epoch)
        return ContinuityClaim(verdict=verdict, after=after, digest=digest, **members)

    def resumed(self, after: int) -> ContinuityClaim:
        return self.claim(VerdictToken.RESUMED, after=after, last=self.last, next=Next.CONTINUE)

    def new(self) -> ContinuityClaim:
        return self.claim(VerdictToken.NEW, after=0, why=Why.FIRST)

    def comment(self, kind: CommentKind, last: int | None, why: Why | None = None) -> bytes:
        return write_comment(ConnectionComment(kind=kind, epoch=self.epoch, last=last, why=why))


class Driver:
    """Tells the stream what happened, at a time that only moves when told to, and keeps its commands."""

    def __init__(self, stream: ClientStream) -> None:
        self.stream = stream
        self.now = 0.0
        self.commands: list[do.Command] = []

    def tell(self, happened: inputs.Happened, *, after_s: float = 0.0) -> list[do.Command]:
        self.now += after_s
        commands = self.stream.receive(happened, now=self.now)
        self.commands += commands
        return commands

    def open(self) -> list[do.Command]:
        return self.tell(inputs.OpenRequested())

    def head(
        self, status: int = 200, *, claim: ContinuityClaim | None = None, **headers: str
    ) -> list[do.Command]:
        found = {"content-type": "text/event-stream"} if 200 <= status < 300 else {}
        found |= {name.replace("_", "-"): value for name, value in headers.items()}
        if claim is not None:
            found["stream-continuity"] = write_claim(claim)
        return self.tell(inputs.HeadReceived(status=status, headers=found))

    def bytes(self, *frames: bytes) -> list[do.Command]:
        return self.tell(inputs.BytesReceived(b"".join(frames)))

    def answer(self, claim: ContinuityClaim | None, *frames: bytes) -> list[do.Command]:
        """A 200 with the claim in the header and as the first line of the body, then frames."""
        self.head(claim=claim)
        return self.bytes(b"" if claim is None else write_comment(claim), *frames)

    def drop(self, *, clean: bool = False) -> list[do.Command]:
        return self.tell(inputs.BodyEnded(clean=clean))

    def wait(self) -> list[do.Command]:
        """Let the time come that the stream asked to be woken at."""
        (at,) = [c.at for c in self.commands if isinstance(c, do.WakeAt)][-1:]
        self.now = max(self.now, at)
        return self.tell(inputs.TimePassed())

    def reopen(self) -> do.Open:
        """Wait until the stream asks again, and return how."""
        for _ in range(4):
            for command in self.wait():
                if isinstance(command, do.Open):
                    return command
        raise AssertionError(f"it does not ask again: {self.stream.state}")

    def all(self, kind: type[CommandT]) -> list[CommandT]:
        return [command for command in self.commands if isinstance(command, kind)]

    def delivered(self) -> list[int]:
        return [json.loads(c.data)["params"]["n"] for c in self.all(do.Deliver)]


@pytest.fixture
def server() -> ServerStream:
    return ServerStream()


@pytest.fixture
def connect() -> Callable[..., Driver]:
    """Make a driver around a fresh stream; a call with id 7 unless told otherwise."""

    def make(
        kind: StreamKind = StreamKind.CALL, *, record: StreamRecord | None = None, **changes: Any
    ) -> Driver:
        request = RequestRecord(request_id=7, method="tools/call") if kind is StreamKind.CALL else None
        settings = StreamSettings(
            server="server", stream="local", kind=kind, revision="2025-11-25", session_id="s", request=request
        )
        counter = itertools.count(1)
        stream = ClientStream(
            msgspec.structs.replace(settings, **changes),
            mint_epoch=lambda: f"local-{next(counter)}",
            jitter=lambda: 0.5,
            record=record,
        )
        return Driver(stream)

    return make


@pytest.fixture
def messages() -> Any:
    """The two makers of JSON-RPC messages."""
    return notification, response


@pytest.fixture
def make_server() -> type[ServerStream]:
    return ServerStream
