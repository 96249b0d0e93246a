"""What `msgspec` raises for bytes from a peer that are no message, wherever such bytes are read.

It must name every such exception: one that is missed lets a peer end a task of ours with a kilobyte.
"""

from __future__ import annotations

import msgspec

#: Malformed or of another shape, no UTF-8, and nested deeper than the interpreter can follow.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
