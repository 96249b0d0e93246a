"""Frames are read as they were written, however the bytes between two processes are cut."""

from __future__ import annotations

import socket

import anyio
import pytest
from anyio.abc import UNIXSocketStream
from counterfoil.adapters.peers.frames import (
    END,
    PIECE_BYTES,
    FrameReader,
    Kind,
    read_request,
    write_frame,
    write_request,
)
from counterfoil.errors import PeerBroken

pytestmark = pytest.mark.anyio

BODY = b"".join(b"%d\n" % number for number in range(2_000))
REPLY = write_frame(Kind.LINE, b"line") + write_frame(Kind.BODY, BODY[:7_000])
REPLY += write_frame(Kind.BODY, b"") + write_frame(Kind.LAST, BODY[7_000:])


async def pair() -> tuple[FrameReader, UNIXSocketStream, UNIXSocketStream]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    reading = await UNIXSocketStream.from_socket(ours)
    return FrameReader(reading), reading, await UNIXSocketStream.from_socket(theirs)


@pytest.mark.parametrize("size", [1, 3, 7, 4_096, 1 << 20])
async def test_frames_are_read_however_they_are_cut(size: int) -> None:
    frames, reading, writing = await pair()
    async with reading, writing, anyio.create_task_group() as tasks:

        async def write() -> None:
            for start in range(0, len(REPLY), size):
                await writing.send(REPLY[start : start + size])

        tasks.start_soon(write)
        assert await frames.frame(max_bytes=10) == (Kind.LINE, b"line")
        body = b""
        while not frames.has_last:
            assert (await frames.frame(max_bytes=10))[1:] == (b"",)  # type: ignore[index]
            while view := (await frames.piece()).view:
                body += view
        assert body == BODY
        assert frames.is_at_rest


async def read_through(frames: FrameReader) -> None:
    while await frames.frame(max_bytes=10) is not None:
        while (await frames.piece()).view:
            pass


@pytest.mark.parametrize("end", [0, 3, 5, 7, 20, 8_000])
async def test_an_end_between_frames_is_an_end_and_one_within_a_break(end: int) -> None:
    frames, reading, writing = await pair()
    async with reading:
        async with writing:
            await writing.send(REPLY[:end] or END)
        if not end:
            assert await frames.frame(max_bytes=10) == (Kind.LAST, b"")
            assert await frames.frame(max_bytes=10) is None
            return
        with pytest.raises(PeerBroken):
            await read_through(frames)


async def test_a_frame_that_is_too_long_is_refused_before_it_is_read() -> None:
    frames, reading, writing = await pair()
    async with reading, writing:
        await writing.send(write_frame(Kind.LINE, bytes(11))[:5])
        with pytest.raises(PeerBroken, match="longer"):
            await frames.frame(max_bytes=10)


async def test_a_cancelled_wait_for_the_end_keeps_what_came_and_much_of_it_is_one() -> None:
    frames, reading, writing = await pair()
    async with reading, writing:
        await writing.send(write_frame(Kind.LINE, b"early"))
        with anyio.move_on_after(0.02) as scope:
            await frames.wait_end()
        assert scope.cancelled_caught
        assert not frames.is_at_rest
        assert await frames.frame(max_bytes=10) == (Kind.LINE, b"early")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writing.send, bytes(2 * PIECE_BYTES))
            await frames.wait_end()
            tasks.cancel_scope.cancel()
    with anyio.fail_after(5):
        await frames.wait_end()  # closed here


def test_a_request_has_its_seal_before_it_or_none() -> None:
    for seal in (b"", b"s" * 255):
        frame = write_request(seal, b"envelope")
        assert frame[0] == Kind.REQUEST
        assert read_request(frame[5:]) == (seal or None, b"envelope")
    assert read_request(b"") == (None, b"")
    assert read_request(b"\x09short") == (b"short", b"")
