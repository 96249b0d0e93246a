"""Takes ids off frames of ours where the client would read more into them than is true.

An unaware client takes the id of an in-band error for an invitation to ask again (decisions S6).  An aware
one, attached for the answer only, could take an id that follows its cursor for a proof of continuity.
"""

from __future__ import annotations

import re

from counterfoil.errors import MalformedInbandError
from counterfoil.protocol.inband_error import CODE, read_inband_error

_MARK = f'"code":{CODE}'.encode()
#: More than any in-band error that we write.
_LONGEST = 4_096
_ID = b"id: "
_DATA = b"data: "
_ID_LINE = re.compile(rb"^id: [^\n]*\n", re.MULTILINE)


def strip_error_ids(frames: bytes) -> bytes:
    """Return whole frames of our encoder; the last ones have no `id` line if they are in-band errors of ours.

    One settles its call, so nothing follows it but the error of another request of the same batch.
    """
    if _MARK not in frames[-_LONGEST:]:
        return frames
    stripped: list[bytes] = []
    end = len(frames)
    while end:
        before = frames.rfind(b"\n\n", 0, end - 2)
        begins = before + 2 if before >= 0 else 0
        last = frames[begins:end]
        without = _strip(last)
        if without is last:
            break
        stripped.append(without)
        end = begins
    return frames[:end] + b"".join(reversed(stripped))


def strip_ids(frames: bytes) -> bytes:
    """Return whole frames of our encoder without their `id` lines."""
    return b"\n".join(line for line in frames.split(b"\n") if not line.startswith(_ID))


def _strip(frame: bytes) -> bytes:
    if _MARK not in frame:
        return frame
    lines = frame.split(b"\n")
    data = b"\n".join(line.removeprefix(_DATA) for line in lines if line.startswith(_DATA))
    try:
        is_ours = read_inband_error(data) is not None
    except MalformedInbandError:
        return frame
    return strip_ids(frame) if is_ours else frame


class IdStripper:
    """Takes the ids off the frames of one connection, whose revision has none; pieces come in order."""

    def __init__(self) -> None:
        self._is_inside_line = False

    def __call__(self, frames: bytes) -> bytes:
        # An event above the size of a piece goes on in the middle of a line, which is then no field.
        begun = 0
        if self._is_inside_line:
            begun = frames.find(b"\n") + 1 or len(frames)
        if frames:
            self._is_inside_line = not frames.endswith(b"\n")
        return frames[:begun] + _ID_LINE.sub(b"", frames[begun:])
