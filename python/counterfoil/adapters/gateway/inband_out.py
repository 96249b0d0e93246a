"""Takes the id off in-band errors of ours on their way to a client that does not know them.

Such a client takes an id for an invitation to ask again (decisions S6); results and other errors keep theirs.
"""

from __future__ import annotations

from counterfoil.errors import MalformedInbandError
from counterfoil.protocol.inband_error import CODE, read_inband_error

_MARK = f'"code":{CODE}'.encode()
#: More than any in-band error that we write.
_LONGEST = 4_096
_ID = b"id: "
_DATA = b"data: "


def strip_error_ids(frames: bytes) -> bytes:
    """Return whole frames of our encoder, without the `id` line if the last one is our in-band error.

    It settles its call, so no other frame follows it.
    """
    if _MARK not in frames[-_LONGEST:]:
        return frames
    begins = frames.rfind(b"\n\n", 0, len(frames) - 2) + 2
    return frames[:begins] + _strip(frames[begins:]) if begins > 1 else _strip(frames)


def _strip(frame: bytes) -> bytes:
    if _MARK not in frame:
        return frame
    lines = frame.split(b"\n")
    data = b"\n".join(line.removeprefix(_DATA) for line in lines if line.startswith(_DATA))
    try:
        is_ours = read_inband_error(data) is not None
    except MalformedInbandError:
        return frame
    return b"\n".join(line for line in lines if not line.startswith(_ID)) if is_ours else frame
