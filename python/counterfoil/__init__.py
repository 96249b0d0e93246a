"""Positive evidence of continuity for MCP streams, and effects that happen once.

Importing this package loads no optional integration and starts no thread.
"""

from counterfoil.errors import CounterfoilError as CounterfoilError
from counterfoil.native import __version__ as __version__

__all__ = [
    "CounterfoilError",
    "__version__",
]
