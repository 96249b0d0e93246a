"""Positive evidence of continuity for MCP streams, and effects that happen once.

Importing this package loads no optional integration and starts no thread.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from counterfoil.errors import HandlerError as HandlerError
from counterfoil.errors import HandlerExists as HandlerExists
from counterfoil.errors import HandlerTooSlow as HandlerTooSlow
from counterfoil.errors import HandshakeFailed as HandshakeFailed
from counterfoil.errors import HttpFault as HttpFault
from counterfoil.errors import Indeterminate as Indeterminate
from counterfoil.errors import KeyConflict as KeyConflict
from counterfoil.errors import KeyFileError as KeyFileError
from counterfoil.errors import KeyFileExposed as KeyFileExposed
from counterfoil.errors import KeyRingError as KeyRingError
from counterfoil.errors import LedgerBusy as LedgerBusy
from counterfoil.errors import LedgerClosed as LedgerClosed
from counterfoil.errors import LedgerCorrupt as LedgerCorrupt
from counterfoil.errors import LedgerError as LedgerError
from counterfoil.errors import LedgerFailed as LedgerFailed
from counterfoil.errors import LedgerFenced as LedgerFenced
from counterfoil.errors import LedgerFull as LedgerFull
from counterfoil.errors import LedgerInUse as LedgerInUse
from counterfoil.errors import LedgerReadOnly as LedgerReadOnly
from counterfoil.errors import LedgerSchemaNewer as LedgerSchemaNewer
from counterfoil.errors import LedgerStalled as LedgerStalled
from counterfoil.errors import LimitExceeded as LimitExceeded
from counterfoil.errors import MalformedEventId as MalformedEventId
from counterfoil.errors import NotApplied as NotApplied
from counterfoil.errors import ParserClosed as ParserClosed
from counterfoil.errors import ReaderBusy as ReaderBusy
from counterfoil.errors import ReaderClosed as ReaderClosed
from counterfoil.errors import ReaderTooSlow as ReaderTooSlow
from counterfoil.errors import ReentrantCall as ReentrantCall
from counterfoil.errors import RequestFailed as RequestFailed
from counterfoil.errors import RequestUnanswerable as RequestUnanswerable
from counterfoil.errors import ScopeMissing as ScopeMissing
from counterfoil.errors import ScopeTooLong as ScopeTooLong
from counterfoil.errors import SessionEnded as SessionEnded
from counterfoil.errors import SessionOver as SessionOver
from counterfoil.errors import SseLimitError as SseLimitError
from counterfoil.errors import StaleAttempt as StaleAttempt
from counterfoil.errors import StillPending as StillPending
from counterfoil.errors import StoreFull as StoreFull
from counterfoil.errors import StreamEnded as StreamEnded
from counterfoil.errors import StreamLost as StreamLost
from counterfoil.errors import TakenOver as TakenOver
from counterfoil.errors import TransactionControlRefused as TransactionControlRefused
from counterfoil.errors import TransactionLost as TransactionLost
from counterfoil.errors import TransactionMissing as TransactionMissing
from counterfoil.errors import TransactionOpen as TransactionOpen
from counterfoil.errors import UnknownEventIdVersion as UnknownEventIdVersion
from counterfoil.errors import UnknownHandlerKind as UnknownHandlerKind
from counterfoil.errors import UnknownStream as UnknownStream
from counterfoil.errors import UnsafeHandler as UnsafeHandler
from counterfoil.errors import UnsafeStore as UnsafeStore
from counterfoil.errors import UnstorableEvent as UnstorableEvent
from counterfoil.handlers import Delivery as Delivery
from counterfoil.handlers import Handlers as Handlers
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
from counterfoil.stores.ledger_interface import Transaction as Transaction
from counterfoil.stores.ledger_memory import MemoryLedger as MemoryLedger
from counterfoil.stores.replay.reader import Reader as Reader
from counterfoil.stores.replay.statistics import ReplayStatistics as ReplayStatistics
from counterfoil.stores.replay.store import EphemeralKeyWarning as EphemeralKeyWarning
from counterfoil.stores.replay.store import ReplayStore as ReplayStore

if TYPE_CHECKING:
    from counterfoil.adapters.gateway.application import Gateway as Gateway
    from counterfoil.adapters.gateway.arrival.scopes import scope_from_header as scope_from_header
    from counterfoil.adapters.mcp_event_store import ReplayEventStore as ReplayEventStore
    from counterfoil.adapters.resumable_app import resumable_app as resumable_app
    from counterfoil.adapters.sdk_client import resumable_client as resumable_client
    from counterfoil.stores.ledger_sqlite import JoinedLedger as JoinedLedger
    from counterfoil.stores.ledger_sqlite import SqliteLedger as SqliteLedger

#: Loaded on first use: what they need is not needed by everybody.
_LAZY = {
    "Gateway": "counterfoil.adapters.gateway.application",
    "JoinedLedger": "counterfoil.stores.ledger_sqlite",
    # Not in `__all__`: it needs the MCP SDK, and `import *` must not.
    "ReplayEventStore": "counterfoil.adapters.mcp_event_store",
    "SqliteLedger": "counterfoil.stores.ledger_sqlite",
    "resumable_client": "counterfoil.adapters.sdk_client",
    "resumable_app": "counterfoil.adapters.resumable_app",
    "scope_from_header": "counterfoil.adapters.gateway.arrival.scopes",
}

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
    "Delivery",
    "DigestChain",
    "EncodeError",
    "EphemeralKeyWarning",
    "EventId",
    "ForeignEventId",
    "Forged",
    "ForkedHandle",
    "Gap",
    "Gateway",
    "HandlerError",
    "HandlerExists",
    "HandlerTooSlow",
    "Handlers",
    "HandshakeFailed",
    "HttpFault",
    "Indeterminate",
    "JoinedLedger",
    "KeyCheck",
    "KeyConflict",
    "KeyFileError",
    "KeyFileExposed",
    "KeyInfo",
    "KeyRing",
    "KeyRingError",
    "LedgerBusy",
    "LedgerClosed",
    "LedgerCorrupt",
    "LedgerError",
    "LedgerFailed",
    "LedgerFenced",
    "LedgerFull",
    "LedgerInUse",
    "LedgerReadOnly",
    "LedgerSchemaNewer",
    "LedgerStalled",
    "LimitExceeded",
    "Limits",
    "MalformedEventId",
    "MemoryLedger",
    "New",
    "NotApplied",
    "NotResumable",
    "ParserClosed",
    "Reader",
    "ReaderBusy",
    "ReaderClosed",
    "ReaderTooSlow",
    "ReentrantCall",
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
    "SqliteLedger",
    "SseBatch",
    "SseBlock",
    "SseComment",
    "SseEnd",
    "SseEvent",
    "SseLimitError",
    "SseParser",
    "StaleAttempt",
    "StillPending",
    "StoreFull",
    "StreamEnded",
    "StreamLost",
    "StreamToken",
    "TakenOver",
    "Transaction",
    "TransactionControlRefused",
    "TransactionLost",
    "TransactionMissing",
    "TransactionOpen",
    "UnknownEventIdVersion",
    "UnknownHandlerKind",
    "UnknownStream",
    "UnsafeHandler",
    "UnsafeStore",
    "UnstorableEvent",
    "Unverifiable",
    "__version__",
    "connect",
    "encode_comment",
    "encode_event",
    "resumable_app",
    "resumable_client",
    "scope_from_header",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
