"""The replay store behind the `EventStore` interface of the MCP SDK, for those who can pass only that.

It detects; it cannot prevent: `docs/event-store.md` says what is left to the front (`resumable_app`).
"""

from counterfoil.adapters.mcp_event_store.store import ReplayEventStore as ReplayEventStore

__all__ = ["ReplayEventStore"]
