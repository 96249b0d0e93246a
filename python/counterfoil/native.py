"""The door to Rust: what the extension offers, under its public names."""

from counterfoil._core import SseBatch as SseBatch
from counterfoil._core import SseBlock as SseBlock
from counterfoil._core import SseComment as SseComment
from counterfoil._core import SseEnd as SseEnd
from counterfoil._core import SseEvent as SseEvent
from counterfoil._core import SseParser as SseParser
from counterfoil._core import __version__ as __version__
from counterfoil._core import encode_comment as encode_comment
from counterfoil._core import encode_event as encode_event
