"""Positive evidence of continuity for MCP streams, and effects that happen once.

Importing this package loads no optional integration and starts no thread.
"""

from counterfoil.errors import CounterfoilError as CounterfoilError
from counterfoil.errors import EncodeError as EncodeError
from counterfoil.errors import ForeignEventId as ForeignEventId
from counterfoil.errors import KeyFileError as KeyFileError
from counterfoil.errors import KeyFileExposed as KeyFileExposed
from counterfoil.errors import KeyRingError as KeyRingError
from counterfoil.errors import LimitExceeded as LimitExceeded
from counterfoil.errors import MalformedEventId as MalformedEventId
from counterfoil.errors import ParserClosed as ParserClosed
from counterfoil.errors import ScopeTooLong as ScopeTooLong
from counterfoil.errors import SseLimitError as SseLimitError
from counterfoil.errors import UnknownEventIdVersion as UnknownEventIdVersion
from counterfoil.limits import Limits as Limits
from counterfoil.model.verdicts import Forged as Forged
from counterfoil.model.verdicts import Gap as Gap
from counterfoil.model.verdicts import New as New
from counterfoil.model.verdicts import NotResumable as NotResumable
from counterfoil.model.verdicts import Reoriginated as Reoriginated
from counterfoil.model.verdicts import Resumed as Resumed
from counterfoil.model.verdicts import ResumeVerdict as ResumeVerdict
from counterfoil.model.verdicts import Unverifiable as Unverifiable
from counterfoil.native import Cursor as Cursor
from counterfoil.native import DigestChain as DigestChain
from counterfoil.native import EventId as EventId
from counterfoil.native import KeyCheck as KeyCheck
from counterfoil.native import KeyInfo as KeyInfo
from counterfoil.native import KeyRing as KeyRing
from counterfoil.native import Scope as Scope
from counterfoil.native import SseBatch as SseBatch
from counterfoil.native import SseBlock as SseBlock
from counterfoil.native import SseComment as SseComment
from counterfoil.native import SseEnd as SseEnd
from counterfoil.native import SseEvent as SseEvent
from counterfoil.native import SseParser as SseParser
from counterfoil.native import StreamToken as StreamToken
from counterfoil.native import __version__ as __version__
from counterfoil.native import encode_comment as encode_comment
from counterfoil.native import encode_event as encode_event

__all__ = [
    "CounterfoilError",
    "Cursor",
    "DigestChain",
    "EncodeError",
    "EventId",
    "ForeignEventId",
    "Forged",
    "Gap",
    "KeyCheck",
    "KeyFileError",
    "KeyFileExposed",
    "KeyInfo",
    "KeyRing",
    "KeyRingError",
    "LimitExceeded",
    "Limits",
    "MalformedEventId",
    "New",
    "NotResumable",
    "ParserClosed",
    "Reoriginated",
    "ResumeVerdict",
    "Resumed",
    "Scope",
    "ScopeTooLong",
    "SseBatch",
    "SseBlock",
    "SseComment",
    "SseEnd",
    "SseEvent",
    "SseLimitError",
    "SseParser",
    "StreamToken",
    "UnknownEventIdVersion",
    "Unverifiable",
    "__version__",
    "encode_comment",
    "encode_event",
]
