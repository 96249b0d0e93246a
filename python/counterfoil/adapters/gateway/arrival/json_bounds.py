"""Bounds the shape of a request's JSON before anybody decodes it: a small body can hold very much.

It does not ask whether the body is JSON at all; that is for the upstream to say.
"""

from __future__ import annotations

import re

from counterfoil.errors import RequestOverLimit

#: A string (possibly without its end), or what begins, separates or ends values.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{},:]', re.DOTALL)


def check_json(body: bytes, *, max_depth: int, max_nodes: int) -> None:
    """Raise `RequestOverLimit` (400) for a body that is nested too deeply or holds too many values.

    A member of an object counts twice, for its name and its value.
    """
    openings = body.count(b"[") + body.count(b"{")
    nodes = 1 + openings + body.count(b",") + body.count(b":")
    if openings <= max_depth and nodes <= max_nodes:
        return  # more cannot be in it, whatever of it is text
    depth, nodes = 0, 1
    for token in _TOKEN.finditer(body):
        sign = body[token.start()]
        if sign in b"[{":
            depth, nodes = depth + 1, nodes + 1
        elif sign in b"]}":
            depth -= 1
        elif sign in b",:":
            nodes += 1
        if depth > max_depth:
            raise RequestOverLimit(400, "json_depth", f"the body is nested deeper than {max_depth}")
        if nodes > max_nodes:
            raise RequestOverLimit(400, "json_nodes", f"the body holds more than {max_nodes} values")
