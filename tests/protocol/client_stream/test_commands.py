"""What is wanted is said in the imperative, by frozen values."""

from __future__ import annotations

from typing import get_args

import msgspec
from counterfoil.protocol.client_stream import commands


def test_commands_are_frozen_values() -> None:
    for kind in get_args(commands.Command):
        assert issubclass(kind, msgspec.Struct)
        assert kind.__struct_config__.frozen
    assert commands.WakeAt(1.0) == commands.WakeAt(1.0)
