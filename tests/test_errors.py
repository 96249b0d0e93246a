"""The tree of exceptions: one root, made in Rust, that survives pickling."""

from __future__ import annotations

import inspect
import pickle

from counterfoil import CounterfoilError, errors


def test_every_exception_has_the_one_root() -> None:
    own = [
        value for _, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, BaseException)
    ]
    assert own
    assert all(issubclass(value, CounterfoilError) for value in own)


def test_the_root_pickles() -> None:
    copy = pickle.loads(pickle.dumps(CounterfoilError("a line that ends")))
    assert type(copy) is CounterfoilError
    assert copy.args == ("a line that ends",)
