"""A child process that serves one long stream over HTTP/1.1, one chunk per event, as fast as it is read.

    python client_server.py EVENTS BYTES

Prints its port, and ends when its standard input closes.  Every GET gets the same bytes, made beforehand.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading

from counterfoil.model.tokens import Next, VerdictToken
from counterfoil.native import KeyRing, Scope, StreamToken
from counterfoil.protocol.continuity import ContinuityClaim, write_claim, write_comment

INFO = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "bench", "version": "1"}}


def make_body(events: int, size: int) -> tuple[str, bytes]:
    """The claim for the head, and the chunked body: events of `size` bytes of data with ids of ours."""
    ring = KeyRing.from_secret(bytes(32), made_s=1)
    scope = Scope(session="bench")
    token = StreamToken.mint(kind="standalone", random=bytes(12))
    epoch = "AAAAAAAAAAA"
    chain = ring.digest_chain(scope, stream=token, epoch=epoch)
    claim = ContinuityClaim(
        verdict=VerdictToken.NEW, next=Next.CONTINUE, after=0, epoch=epoch, digest=chain.current
    )
    pieces = [write_comment(claim)]
    for number in range(1, events + 1):
        message = {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": "bench", "progress": number, "message": ""},
        }
        empty = len(json.dumps(message))
        message["params"]["message"] = "é words of a message "[:size] * (1 + (size - empty) // 21)  # type: ignore[index]
        data = json.dumps(message, ensure_ascii=False).encode()
        digest = chain.append(number, data=data)
        own = ring.event_id(scope, stream=token, epoch=epoch, sequence=number, digest=digest)
        pieces.append(f"event: message\nid: {own}\ndata: ".encode() + data + b"\n\n")
    return write_claim(claim), b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


def read_request(connection: socket.socket) -> tuple[str, bytes] | None:
    raw = b""
    while b"\r\n\r\n" not in raw:
        piece = connection.recv(65_536)
        if not piece:
            return None
        raw += piece
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").lower().split("\r\n")
    length = next((int(line.split(":")[1]) for line in lines if line.startswith("content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65_536)
    return lines[0].split()[0], body


def serve(connection: socket.socket, claim: str, stream: bytes) -> None:
    with connection:
        while (request := read_request(connection)) is not None:
            method, body = request
            if method == "get":
                head = (
                    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
                    f"stream-continuity: {claim}\r\n\r\n"
                )
                try:
                    connection.sendall(head.encode() + stream + b"0\r\n\r\n")
                except OSError:
                    return
            elif b'"initialize"' in body:
                answer = json.dumps({"jsonrpc": "2.0", "id": json.loads(body)["id"], "result": INFO}).encode()
                fields = f"content-type: application/json\r\ncontent-length: {len(answer)}"
                connection.sendall(f"HTTP/1.1 200 OK\r\n{fields}\r\n\r\n".encode() + answer)
            else:
                status = "202 Accepted" if method == "post" else "200 OK"
                connection.sendall(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode())


def main() -> None:
    claim, stream = make_body(int(sys.argv[1]), int(sys.argv[2]))
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)

    def end() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=end, daemon=True).start()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection, claim, stream), daemon=True).start()


if __name__ == "__main__":
    main()
