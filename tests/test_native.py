"""The door to Rust gives out classes that name the package as their home."""

from __future__ import annotations

import inspect

from counterfoil import native


def test_native_classes_say_that_they_live_in_the_package() -> None:
    for name, value in inspect.getmembers(native, inspect.isclass):
        assert value.__module__.split(".")[0] == "counterfoil", name
