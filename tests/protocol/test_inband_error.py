"""The in-band error: one code, one shape, the caller's id with its type, and nothing else taken for it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from counterfoil import SseParser, encode_event
from counterfoil.errors import MalformedInbandError
from counterfoil.model.tokens import Executed, Next, VerdictToken, Why
from counterfoil.protocol.inband_error import (
    CODE,
    InbandError,
    InbandEvidence,
    read_inband_error,
    write_inband_error,
)
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import JSONRPCError, jsonrpc_message_adapter

sequences = st.none() | st.integers(0, 2**63 - 1)
errors = st.builds(
    InbandError,
    request_id=st.none() | st.integers() | st.text(max_size=30),
    why=st.sampled_from(Why),
    executed=st.sampled_from(Executed),
    verdict=st.none() | st.sampled_from(VerdictToken),
    next=st.none() | st.sampled_from(Next),
    evidence=st.builds(
        InbandEvidence,
        row=st.none() | st.integers(0, 14),
        status=st.none() | st.integers(100, 599),
        epoch=st.none() | st.just("AAAAAAAAAAA"),
        asked=sequences,
        first=sequences,
        last=sequences,
    ),
)


def message(detail: object, **changes: object) -> dict[str, Any]:
    error = {"code": CODE, "message": "x", "data": {"io.counterfoil": detail}}
    return {"jsonrpc": "2.0", "id": 1, "error": error, **changes}


@given(errors)
def test_an_error_survives_the_stream(error: InbandError) -> None:
    written = write_inband_error(error)
    (event,) = SseParser().feed(encode_event(written))
    assert event.data == written.decode()
    assert b"\n" not in written
    assert read_inband_error(event.data) == read_inband_error(written) == error
    small = not isinstance(error.request_id, int) or abs(error.request_id) < 2**63
    if small:
        assert read_inband_error(json.loads(written)) == error


def test_the_code_lies_outside_what_json_rpc_and_mcp_keep() -> None:
    assert not -32768 <= CODE <= -32000


@pytest.mark.parametrize("request_id", [0, -5, 2**53 + 1, 1.5, "", "7", "order-17", 10**30])
def test_the_request_id_keeps_its_type(request_id: int | float | str) -> None:
    error = InbandError(request_id=request_id, why=Why.TRIMMED, executed=Executed.UNKNOWN)
    written = json.loads(write_inband_error(error))["id"]
    assert written == request_id
    assert type(written) is type(request_id)


def test_the_sdk_reads_it_as_the_error_of_that_request() -> None:
    error = InbandError(request_id=7, why=Why.TRIMMED, executed=Executed.UNKNOWN)
    read = jsonrpc_message_adapter.validate_json(write_inband_error(error))
    assert isinstance(read, JSONRPCError)
    assert (read.id, read.error.code) == (7, CODE)


def test_the_text_tells_a_person_whether_to_send_again() -> None:
    for executed, words in (
        (Executed.NO, "safe to send it again"),
        (Executed.YES, "Do not send it again"),
        (Executed.UNKNOWN, "Check before sending it again"),
    ):
        written = write_inband_error(InbandError(request_id=1, why=Why.STORE, executed=executed))
        assert words in json.loads(written)["error"]["message"]


def test_sequences_travel_as_strings() -> None:
    evidence = InbandEvidence(asked=2**53 + 1)
    error = InbandError(request_id=1, why=Why.AHEAD, executed=Executed.UNKNOWN, evidence=evidence)
    detail = json.loads(write_inband_error(error))["error"]["data"]["io.counterfoil"]
    assert detail["evidence"] == {"asked": "9007199254740993"}


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"not json",
        b"\xff",
        b"[]",
        b"1",
        b"[" * 100_000,
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        message({}, error="text"),
        message({}, error={"code": -32000, "data": {"io.counterfoil": {}}}),
        message({}, error={"code": CODE, "data": None}),
        message({}, error={"code": CODE, "data": {"other": {}}}),
        message({}, error={"code": CODE}),
    ],
)
def test_other_messages_are_not_ours(other: bytes | dict[str, Any]) -> None:
    assert read_inband_error(other) is None


GOOD = {"v": 1, "why": "trimmed", "executed": "no"}


@pytest.mark.parametrize(
    "detail",
    [
        None,
        {},
        {**GOOD, "v": 2},
        {**GOOD, "executed": "maybe"},
        {**GOOD, "verdict": "resumed-ish"},
        {**GOOD, "next": "panic"},
        {**GOOD, "why": 1},
        {"v": 1, "why": "trimmed"},
        {**GOOD, "evidence": []},
        {**GOOD, "evidence": {"asked": 5}},
        {**GOOD, "evidence": {"asked": "-5"}},
        {**GOOD, "evidence": {"asked": "٣"}},
        {**GOOD, "evidence": {"asked": "9" * 20}},
        {**GOOD, "evidence": {"row": "1"}},
        {**GOOD, "evidence": {"row": True}},
        {**GOOD, "evidence": {"epoch": "x" * 257}},
    ],
)
def test_an_error_of_ours_in_another_shape_is_told(detail: object) -> None:
    with pytest.raises(MalformedInbandError):
        read_inband_error(message(detail))


@pytest.mark.parametrize("request_id", [True, [], {}])
def test_an_id_that_json_rpc_does_not_have_is_told(request_id: object) -> None:
    with pytest.raises(MalformedInbandError):
        read_inband_error(message(GOOD, id=request_id))


def test_a_shape_that_grew_is_still_read() -> None:
    read = read_inband_error(message({**GOOD, "why": "mars", "more": [1], "evidence": {"moon": 1}}))
    assert read == InbandError(request_id=1, why=Why.SIGNALLED, executed=Executed.NO)
