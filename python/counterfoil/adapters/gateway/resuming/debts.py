"""Settles a call that ended without its answer, at the moment in which its client comes back for it.

The error becomes the call's terminal event, so that whoever comes later gets the same one; where an answer
came after all, it wins and nothing is stored.
"""

from __future__ import annotations

import msgspec

from counterfoil.adapters.gateway.resuming.replies import error_of
from counterfoil.errors import SessionEnded, StreamEnded, UnknownStream
from counterfoil.native import Scope, encode_event
from counterfoil.protocol.inband_error import write_inband_error
from counterfoil.stores.interface import LogReader, ReplayLog


class Settlement(msgspec.Struct, frozen=True):
    """Frames of the errors with the IDs under which they are stored, and whether an answer came before."""

    frames: bytes = b""
    is_overtaken: bool = False


async def settle_debt(log: ReplayLog, scope: Scope, reader: LogReader) -> Settlement:
    """Store the error of every request that a resume found without an answer; a reader that is attached
    reads them by itself.
    """
    answer, stream = reader.answer, reader.stream
    if answer is None or stream is None or answer.settle != "append":
        return Settlement()
    frames, is_overtaken = b"", False
    for request_id in answer.request_ids:
        data = write_inband_error(error_of(reader.verdict, answer, request_id))
        try:
            event_id = await log.settle(scope, stream, data)
        except (SessionEnded, StreamEnded, UnknownStream):
            event_id = None  # it went away meanwhile, and what the table says of that is told next
        if event_id is None:
            is_overtaken = True
        else:
            frames += encode_event(data, id=event_id)
    return Settlement(frames, is_overtaken)
