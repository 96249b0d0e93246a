"""Call a tool over a bare socket, and resume the call when its connection breaks.

    python examples/bare_socket.py 127.0.0.1 8080 order '{"call": "one", "steps": 5, "pause_ms": 50}'

`ClientStream` judges and says what to do; this is all the I/O that it needs, blocking and without any HTTP
library.  The same machine runs under any loop, or under a test's clock.
"""

from __future__ import annotations

import json
import random
import secrets
import socket
import sys
import time
from collections import deque
from typing import Any

from counterfoil import ClientStream
from counterfoil.model.stream import RequestRecord
from counterfoil.model.tokens import StreamKind
from counterfoil.protocol.client_stream import commands, inputs
from counterfoil.protocol.client_stream.settings import StreamSettings

REVISION = "2025-11-25"


class Chunks:
    """Takes the chunked coding of HTTP/1.1 off a body."""

    def __init__(self) -> None:
        self._raw = b""
        self.is_over = False

    def feed(self, data: bytes) -> bytes:
        self._raw += data
        body = b""
        while not self.is_over:
            line, newline, rest = self._raw.partition(b"\r\n")
            size = int(line.split(b";")[0], 16) if newline else 0
            if not newline or len(rest) < size + 2:
                break
            body += rest[:size]
            self._raw = rest[size + 2 :]
            self.is_over = size == 0
        return body


class Caller:
    """One session with one server; one call at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._session_id: str | None = None
        self._socket: socket.socket | None = None
        self._chunks: Chunks | None = None
        self._early = b""
        self._count = 0

    def call(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request and return its result; raises RuntimeError where no answer came."""
        self._count += 1
        request = {"jsonrpc": "2.0", "id": self._count, "method": method, "params": params}
        settings = StreamSettings(
            server=f"{self._host}:{self._port}",
            stream=f"call-{self._count}",
            kind=StreamKind.CALL,
            revision=REVISION,
            session_id=self._session_id,
            request=RequestRecord(request_id=self._count, method=method),
            deadline=time.monotonic() + 30,
        )
        stream = ClientStream(settings, mint_epoch=lambda: secrets.token_urlsafe(9), jitter=random.random)
        happenings: deque[inputs.Happened] = deque([inputs.OpenRequested()])
        answer: dict[str, Any] = {}
        wake_at = time.monotonic()
        while True:
            happened = happenings.popleft() if happenings else self._wait(wake_at)
            for command in stream.receive(happened, now=time.monotonic()):
                match command:
                    case commands.Open():
                        happenings.append(self._open(command, json.dumps(request).encode()))
                    case commands.Close():
                        self._close()
                    case commands.WakeAt():
                        wake_at = command.at
                    case commands.Report():
                        print("verdict:", type(command.verdict).__name__, command.verdict.why)
                    case commands.Deliver():
                        print("event:", command.place.position, command.data.decode())
                        happenings.append(inputs.EventsProcessed(through=command.place.position))
                    case commands.Answer():
                        answer = json.loads(command.data)
                    case commands.Settle():
                        raise RuntimeError(f"{command.outcome.token}: {command.outcome.why}")
                    case commands.End():
                        self._session_id = stream.session_id
                        return answer["result"]
                    case _:  # pauses, records and tidings, which one call at a time does not need
                        pass

    def notify(self, method: str) -> None:
        """Send a notification."""
        message = json.dumps({"jsonrpc": "2.0", "method": method}).encode()
        headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": REVISION}
        if self._session_id is not None:
            headers["mcp-session-id"] = self._session_id
        self._open(commands.Open(resumes=False, headers=headers), message)
        self._close()

    def _open(self, opening: commands.Open, body: bytes) -> inputs.Happened:
        method, body = ("GET", b"") if opening.resumes else ("POST", body)
        fields = {"host": f"{self._host}:{self._port}", "content-length": str(len(body)), **opening.headers}
        fields["content-type"] = "application/json"
        lines = [f"{method} /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        try:
            self._socket = socket.create_connection((self._host, self._port), timeout=10)
        except OSError:
            return inputs.ConnectionFailed(sent=False)
        try:
            self._socket.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
            raw = b""
            while b"\r\n\r\n" not in raw:
                piece = self._socket.recv(65_536)
                if not piece:
                    raise ConnectionError("closed before the head")
                raw += piece
        except OSError:
            self._close()
            return inputs.ConnectionFailed(sent=True)
        text, _, self._early = raw.partition(b"\r\n\r\n")
        status, *lines = text.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self._chunks = Chunks() if headers.get("transfer-encoding") == "chunked" else None
        return inputs.HeadReceived(status=int(status.split()[1]), headers=headers)

    def _wait(self, wake_at: float) -> inputs.Happened:
        """Return what happens next: bytes, their end, or the time."""
        left = max(0.001, wake_at - time.monotonic())
        if self._socket is None:
            time.sleep(left)
            return inputs.TimePassed()
        data, self._early = self._early, b""
        if not data:
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(65_536)
            except TimeoutError:
                return inputs.TimePassed()
            except OSError:
                return self._end(is_clean=False)
        if not data:
            return self._end(is_clean=self._chunks is None)
        if self._chunks is None:
            return inputs.BytesReceived(data)
        body = self._chunks.feed(data)
        if body or not self._chunks.is_over:
            return inputs.BytesReceived(body)
        return self._end(is_clean=True)

    def _end(self, *, is_clean: bool) -> inputs.BodyEnded:
        self._close()
        return inputs.BodyEnded(clean=is_clean)

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def main() -> None:
    host, port, tool, arguments = sys.argv[1:]
    caller = Caller(host, int(port))
    client = {"name": "bare-socket", "version": "1"}
    caller.call("initialize", {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": client})
    caller.notify("notifications/initialized")
    params = {"name": tool, "arguments": json.loads(arguments), "_meta": {"progressToken": 1}}
    print("answer:", json.dumps(caller.call("tools/call", params)))


if __name__ == "__main__":
    main()
