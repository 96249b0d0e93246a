"""Adds the metrics and the statuses of several processes up: each of them is a count, so sums are true."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def add_metrics(texts: Iterable[bytes]) -> bytes:
    """Add Prometheus texts line by line; families stay together, in the order in which they first come."""
    families: dict[str, dict[str, float]] = {}
    family = ""
    for text in texts:
        for line in text.decode().splitlines():
            if line.startswith("#"):
                family = line
                families.setdefault(family, {})
                continue
            name, _, value = line.rpartition(" ")
            values = families.setdefault(family, {})
            values[name] = values.get(name, 0) + float(value)
    lines: list[str] = []
    for family, values in families.items():
        lines.append(family)
        lines += [f"{name} {_number(value)}" for name, value in values.items()]
    return ("\n".join(lines) + "\n").encode()


def add_values(left: Any, right: Any) -> Any:
    """Add two JSON values of one shape; of what is no number the left one stays."""
    if isinstance(left, dict) and isinstance(right, dict):
        return {name: add_values(value, right.get(name)) for name, value in left.items()}
    if isinstance(left, list) and isinstance(right, list):
        return [add_values(*pair) for pair in zip(left, right, strict=False)]
    if _is_number(left) and _is_number(right):
        return left + right
    return left if left is not None else right


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else f"{value:.6f}"
