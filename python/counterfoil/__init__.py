"""Positive evidence of continuity for MCP streams, and effects that happen once.

Importing this package loads no optional integration and starts no thread.
"""

from counterfoil.errors import CounterfoilError as CounterfoilError
from counterfoil.model.verdicts import Forged as Forged
from counterfoil.model.verdicts import Gap as Gap
from counterfoil.model.verdicts import New as New
from counterfoil.model.verdicts import NotResumable as NotResumable
from counterfoil.model.verdicts import Reoriginated as Reoriginated
from counterfoil.model.verdicts import Resumed as Resumed
from counterfoil.model.verdicts import ResumeVerdict as ResumeVerdict
from counterfoil.model.verdicts import Unverifiable as Unverifiable
from counterfoil.native import __version__ as __version__

__all__ = [
    "CounterfoilError",
    "Forged",
    "Gap",
    "New",
    "NotResumable",
    "Reoriginated",
    "ResumeVerdict",
    "Resumed",
    "Unverifiable",
    "__version__",
]
