"""Positive evidence of continuity for MCP streams, and effects that happen once."""

from counterfoil.errors import CounterfoilError as CounterfoilError
