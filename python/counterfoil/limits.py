"""Every bound that Counterfoil keeps, in one frozen value.

A bound has a name, a default and a typed error that names it (:class:`counterfoil.LimitExceeded`); passing
one never loses what was accepted before.
"""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What may be held; units are last in each name.

    Raises ``ValueError`` for a bound below 1.
    """

    # --- SSE parser ---
    line_bytes: int = 16 << 20
    """One line of an event stream without its line end; comments and ignored fields count too."""
    event_bytes: int = 16 << 20
    """One event from its first field to the end of its last line; names, line ends and comments count."""
    event_lines: int = 1 << 18
    """Lines of one event, counted likewise."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"Limits.{name} is {value}: a bound is at least 1")
