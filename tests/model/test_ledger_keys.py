"""Keys: what is one and the same effect, and what is not."""

from __future__ import annotations

import msgspec
import pytest
from counterfoil import Scope
from counterfoil.model.ledger_keys import (
    CallKey,
    EventPlace,
    PayloadKey,
    describe_key,
    encode_key,
    encode_stream,
    idempotency_key_of,
    stream_of,
)

SCOPE = Scope(tenant="t", principal="p", session="s")
EVENT = EventPlace(server="https://a", stream="st", epoch="e", position=7, event_id="id-7")


def test_an_event_of_ours_is_its_sequence_and_a_foreign_one_its_exact_id() -> None:
    again = msgspec.structs.replace(EVENT, event_id="another text")
    assert encode_key(SCOPE, again) == encode_key(SCOPE, EVENT)
    foreign = msgspec.structs.replace(EVENT, foreign=True)
    moved = msgspec.structs.replace(foreign, position=8)
    assert encode_key(SCOPE, moved) == encode_key(SCOPE, foreign) != encode_key(SCOPE, EVENT)


@pytest.mark.parametrize("field", ["server", "stream", "epoch"])
def test_another_server_stream_or_epoch_is_another_event(field: str) -> None:
    other = msgspec.structs.replace(EVENT, **{field: "other"})
    assert encode_key(SCOPE, other) != encode_key(SCOPE, EVENT)


@pytest.mark.parametrize("part", ["tenant", "principal", "session"])
def test_no_scope_reads_the_event_of_another(part: str) -> None:
    parts = {"tenant": "t", "principal": "p", "session": "s", part: "other"}
    assert encode_key(Scope(**parts), EVENT) != encode_key(SCOPE, EVENT)
    parts[part] = None  # type: ignore[assignment]
    assert encode_key(Scope(**parts), EVENT) != encode_key(SCOPE, EVENT)


def test_types_are_kept_so_that_equal_texts_and_numbers_never_meet() -> None:
    """B211: a number and the text of that number are two keys."""
    number = encode_key(SCOPE, EVENT)
    text = encode_key(SCOPE, msgspec.structs.replace(EVENT, foreign=True, event_id="7"))
    assert number != text
    assert encode_key(Scope(principal="1"), EVENT) != encode_key(Scope(tenant="1"), EVENT)


def test_a_call_key_belongs_to_the_principal_across_sessions_and_else_to_the_session() -> None:
    """L8: (route, tenant, principal or session, key)."""
    call = CallKey(route="r", key="order-17")
    assert encode_key(Scope(principal="p", session="1"), call) == encode_key(
        Scope(principal="p", session="2"), call
    )
    assert encode_key(Scope(session="1"), call) != encode_key(Scope(session="2"), call)
    assert encode_key(SCOPE, call) != encode_key(SCOPE, CallKey(route="other", key="order-17"))
    # A session that is named like a principal is not that principal.
    assert encode_key(Scope(session="p"), call) != encode_key(Scope(principal="p"), call)


def test_a_payload_key_names_the_work_in_any_session_of_its_owner() -> None:
    key = PayloadKey(server="a", key="k")
    assert encode_key(Scope(principal="p", session="1"), key) == encode_key(
        Scope(principal="p", session="2"), key
    )
    assert encode_key(Scope(principal="q"), key) != encode_key(Scope(principal="p"), key)


def test_keys_read_back_into_words() -> None:
    assert stream_of(encode_key(SCOPE, EVENT)) == encode_stream(SCOPE, "https://a", "st")
    assert stream_of(encode_key(SCOPE, CallKey(route="r", key="k"))) is None
    words = describe_key(encode_key(SCOPE, EVENT))
    assert (words.what, words.tenant, words.principal, words.session) == ("event", "t", "p", "s")
    assert (words.server, words.stream, words.epoch, words.key) == ("https://a", "st", "e", "7")
    call = describe_key(encode_key(Scope(session="s"), CallKey(route="r", key="k")))
    assert (call.what, call.session, call.server, call.key) == ("call", "s", "r", "k")
    payload = describe_key(encode_key(SCOPE, PayloadKey(server="a", key="k")))
    assert (payload.what, payload.server, payload.key) == ("payload", "a", "k")
    stream = describe_key(encode_stream(SCOPE, "a", "st"))
    assert (stream.what, stream.server, stream.stream) == ("stream", "a", "st")


def test_a_sink_sees_one_short_key_per_effect() -> None:
    one = idempotency_key_of(encode_key(SCOPE, EVENT))
    assert one == idempotency_key_of(encode_key(SCOPE, EVENT))
    assert len(one) == 32
    assert one != idempotency_key_of(encode_key(SCOPE, msgspec.structs.replace(EVENT, position=8)))
