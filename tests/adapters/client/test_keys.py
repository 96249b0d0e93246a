"""Equal arguments have equal fingerprints, and a key does not travel as it is."""

from __future__ import annotations

from counterfoil.adapters.client.keys import CALL_META, add_key, make_intent, stream_name, wire_key
from counterfoil.native import Scope

SCOPE = Scope(principal="alice")


def test_order_and_meta_are_no_arguments_and_answers_to_questions_have_a_digest_of_their_own() -> None:
    one = make_intent(SCOPE, "s", "k", "tools/call", {"a": 1, "b": {"x": 1, "y": 2}})
    same = make_intent(
        SCOPE, "s", "k", "tools/call", {"b": {"y": 2, "x": 1}, "a": 1, "_meta": {"progressToken": 7}}
    )
    round_two = make_intent(
        SCOPE, "s", "k", "tools/call", {"a": 1, "b": {"x": 1, "y": 2}, "requestState": "r"}
    )
    assert one.fingerprint == same.fingerprint == round_two.fingerprint
    assert one.round == same.round == b""
    assert round_two.round
    assert (
        one.fingerprint
        != make_intent(SCOPE, "s", "k", "tools/list", {"a": 1, "b": {"x": 1, "y": 2}}).fingerprint
    )
    assert one.fingerprint != make_intent(SCOPE, "s", "k", "tools/call", {"a": 2}).fingerprint


def test_what_travels_depends_on_ledger_server_and_key_and_shows_none_of_them() -> None:
    travels = {
        wire_key(secret, server, key)
        for secret in (b"1" * 32, b"2" * 32)
        for server in ("http://a/mcp", "http://b/mcp")
        for key in ("order-17", "order-18")
    }
    assert len(travels) == 8
    assert all(len(text) == 32 and "order" not in text for text in travels)


def test_opting_in_keeps_the_callers_own_meta() -> None:
    given = {"name": "x", "_meta": {"progressToken": 1}}
    sent = add_key(given, "abc")
    assert sent["_meta"]["progressToken"] == 1
    assert sent["_meta"][CALL_META]["key"] == "abc"
    assert given == {"name": "x", "_meta": {"progressToken": 1}}


def test_a_keyed_calls_stream_has_the_same_name_in_every_process_and_another_per_principal() -> None:
    assert stream_name(SCOPE, "s", "k") == stream_name(Scope(principal="alice"), "s", "k")
    assert stream_name(SCOPE, "s", "k") != stream_name(Scope(principal="bob"), "s", "k")
