"""Positive evidence of continuity for MCP streams, and effects that happen once.

Importing this package loads no optional integration and starts no thread.
"""

from counterfoil.adapters.client.connection import Connection as Connection
from counterfoil.adapters.client.inbox import Arrival as Arrival
from counterfoil.adapters.client.opening import connect as connect
from counterfoil.adapters.client.tickets import CallEvidence as CallEvidence
from counterfoil.adapters.client.tickets import CallTicket as CallTicket
from counterfoil.errors import AnswerTooLarge as AnswerTooLarge
from counterfoil.errors import ConnectionNotOpen as ConnectionNotOpen
from counterfoil.errors import CounterfoilError as CounterfoilError
from counterfoil.errors import EncodeError as EncodeError
from counterfoil.errors import ForeignEventId as ForeignEventId
from counterfoil.errors import ForkedHandle as ForkedHandle
from counterfoil.errors import HandshakeFailed as HandshakeFailed
from counterfoil.errors import HttpFault as HttpFault
from counterfoil.errors import Indeterminate as Indeterminate
from counterfoil.errors import KeyFileError as KeyFileError
from counterfoil.errors import KeyFileExposed as KeyFileExposed
from counterfoil.errors import KeyRingError as KeyRingError
from counterfoil.errors import LimitExceeded as LimitExceeded
from counterfoil.errors import MalformedEventId as MalformedEventId
from counterfoil.errors import NotApplied as NotApplied
from counterfoil.errors import ParserClosed as ParserClosed
from counterfoil.errors import ReaderBusy as ReaderBusy
from counterfoil.errors import ReaderClosed as ReaderClosed
from counterfoil.errors import ReaderTooSlow as ReaderTooSlow
from counterfoil.errors import RequestFailed as RequestFailed
from counterfoil.errors import RequestUnanswerable as RequestUnanswerable
from counterfoil.errors import ScopeMissing as ScopeMissing
from counterfoil.errors import ScopeTooLong as ScopeTooLong
from counterfoil.errors import SessionEnded as SessionEnded
from counterfoil.errors import SessionOver as SessionOver
from counterfoil.errors import SseLimitError as SseLimitError
from counterfoil.errors import StillPending as StillPending
from counterfoil.errors import StoreFull as StoreFull
from counterfoil.errors import StreamEnded as StreamEnded
from counterfoil.errors import StreamLost as StreamLost
from counterfoil.errors import TakenOver as TakenOver
from counterfoil.errors import UnknownEventIdVersion as UnknownEventIdVersion
from counterfoil.errors import UnknownStream as UnknownStream
from counterfoil.errors import UnstorableEvent as UnstorableEvent
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
from counterfoil.protocol.client_stream import ClientStream as ClientStream
from counterfoil.stores.replay.reader import Reader as Reader
from counterfoil.stores.replay.statistics import ReplayStatistics as ReplayStatistics
from counterfoil.stores.replay.store import EphemeralKeyWarning as EphemeralKeyWarning
from counterfoil.stores.replay.store import ReplayStore as ReplayStore

__all__ = [
    "AnswerTooLarge",
    "Arrival",
    "CallEvidence",
    "CallTicket",
    "ClientStream",
    "Connection",
    "ConnectionNotOpen",
    "CounterfoilError",
    "Cursor",
    "DigestChain",
    "EncodeError",
    "EphemeralKeyWarning",
    "EventId",
    "ForeignEventId",
    "Forged",
    "ForkedHandle",
    "Gap",
    "HandshakeFailed",
    "HttpFault",
    "Indeterminate",
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
    "NotApplied",
    "NotResumable",
    "ParserClosed",
    "Reader",
    "ReaderBusy",
    "ReaderClosed",
    "ReaderTooSlow",
    "Reoriginated",
    "ReplayStatistics",
    "ReplayStore",
    "RequestFailed",
    "RequestUnanswerable",
    "ResumeVerdict",
    "Resumed",
    "Scope",
    "ScopeMissing",
    "ScopeTooLong",
    "SessionEnded",
    "SessionOver",
    "SseBatch",
    "SseBlock",
    "SseComment",
    "SseEnd",
    "SseEvent",
    "SseLimitError",
    "SseParser",
    "StillPending",
    "StoreFull",
    "StreamEnded",
    "StreamLost",
    "StreamToken",
    "TakenOver",
    "UnknownEventIdVersion",
    "UnknownStream",
    "UnstorableEvent",
    "Unverifiable",
    "__version__",
    "connect",
    "encode_comment",
    "encode_event",
]
