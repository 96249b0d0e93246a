"""What of a call counts for being the same call, and what its key must look like."""

from __future__ import annotations

import json
from typing import Any

import pytest
from counterfoil.errors import MalformedCallKey
from counterfoil.protocol.call_facts import KEY_MEMBER, CallFacts, GivenKey, read_call


def body(params: Any, request_id: Any = 1, method: str = "tools/call") -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}).encode()


def read(**params: Any) -> CallFacts:
    facts = read_call(body({"name": "order", **params}))
    assert facts is not None
    return facts


def key(**members: Any) -> dict[str, Any]:
    return {"_meta": {KEY_MEMBER: {"v": 1, "key": "order-17", **members}}}


def test_the_request_id_and_meta_do_not_count() -> None:
    first = read_call(body({"name": "order", "arguments": {"n": 1}, "_meta": {"progressToken": 1}}, 1))
    second = read_call(body({"arguments": {"n": 1.0}, "name": "order"}, "other"))
    assert first == second


@pytest.mark.parametrize(
    "other",
    [
        {"arguments": {"n": 2}},
        {"arguments": {"n": "1"}},
        {"arguments": {"n": 1, "_meta": {}}},  # only the params' own `_meta` is none of the call's
        {"arguments": {"n": 1}, "name": "cancel_order"},
        {"arguments": {"n": 1}, "task": {"ttl": 5}},
        {},
    ],
)
def test_everything_else_counts(other: dict[str, Any]) -> None:
    assert read(arguments={"n": 1}).params != read(**other).params


def test_answers_of_a_round_count_for_identity_and_not_for_the_fingerprint() -> None:
    """Decision L7 (b): round two "yes" must not adopt round two "no"."""
    yes = read(arguments={}, inputResponses={"q": "yes"}, requestState="s", **key())
    no = read(arguments={}, inputResponses={"q": "no"}, requestState="s", **key())
    first = read(arguments={}, **key())
    assert len({yes.params, no.params, first.params}) == 3
    assert yes.fingerprint == no.fingerprint == first.fingerprint != b""
    assert len({yes.round, no.round, first.round}) == 3
    assert first.round == b""


def test_a_key_is_read_with_what_a_close_means() -> None:
    assert read(**key()).given == GivenKey(key="order-17", on_disconnect=None)
    assert read(**key(on_disconnect="cancel")).given == GivenKey(key="order-17", on_disconnect="cancel")
    assert read(**key(on_disconnect="detach")).given == GivenKey(key="order-17", on_disconnect="detach")
    assert read(arguments={}).given is None


@pytest.mark.parametrize(
    "members",
    [
        {"v": 2},
        {"v": "1"},
        {"v": True},
        {"key": ""},
        {"key": 5},
        {"key": "k" * 257},
        {"on_disconnect": "stay"},
    ],
)
def test_a_key_of_another_shape_is_refused_by_name(members: dict[str, Any]) -> None:
    with pytest.raises(MalformedCallKey, match=KEY_MEMBER):
        read(**key(**members))


def test_a_key_in_an_ambiguous_body_is_refused_and_an_unkeyed_one_is_no_call_to_compare() -> None:
    twice = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"n":1,"n":2}%s}}'
    )
    assert read_call(twice % b"") is None
    with pytest.raises(MalformedCallKey):
        read_call(twice % b',"_meta":{"io.counterfoil/call":{"v":1,"key":"k"}}')


@pytest.mark.parametrize("params", [None, [], {"name": 5}, {"arguments": {}}, "x"])
def test_what_names_no_tool_is_no_call(params: Any) -> None:
    assert read_call(body(params)) is None
    assert read_call(body({"name": "order"}, method="tools/list")) is None
    assert read_call(b"[]") is None
