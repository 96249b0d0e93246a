"""What can happen is said in the past tense, by frozen values."""

from __future__ import annotations

from typing import get_args

import msgspec
from counterfoil.protocol.client_stream import inputs


def test_inputs_are_frozen_values() -> None:
    for kind in get_args(inputs.Happened):
        assert issubclass(kind, msgspec.Struct)
        assert kind.__struct_config__.frozen
    assert inputs.BytesReceived(b"x") == inputs.BytesReceived(b"x")
