"""The door to Rust: what the extension offers, under its public names."""

from counterfoil._core import ChunkJoiner as ChunkJoiner
from counterfoil._core import Cursor as Cursor
from counterfoil._core import DigestChain as DigestChain
from counterfoil._core import EventId as EventId
from counterfoil._core import EventIds as EventIds
from counterfoil._core import KeyCheck as KeyCheck
from counterfoil._core import KeyInfo as KeyInfo
from counterfoil._core import KeyRing as KeyRing
from counterfoil._core import ReaderCore as ReaderCore
from counterfoil._core import RelayBatch as RelayBatch
from counterfoil._core import RelayCore as RelayCore
from counterfoil._core import RelaySeen as RelaySeen
from counterfoil._core import ReplayCore as ReplayCore
from counterfoil._core import ResumeAnswer as ResumeAnswer
from counterfoil._core import Scope as Scope
from counterfoil._core import SseBatch as SseBatch
from counterfoil._core import SseBlock as SseBlock
from counterfoil._core import SseComment as SseComment
from counterfoil._core import SseEnd as SseEnd
from counterfoil._core import SseEvent as SseEvent
from counterfoil._core import SseParser as SseParser
from counterfoil._core import StreamToken as StreamToken
from counterfoil._core import __version__ as __version__
from counterfoil._core import encode_comment as encode_comment
from counterfoil._core import encode_event as encode_event
