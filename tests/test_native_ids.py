"""Event IDs as Python values: one spelling, bound to a scope, frozen, picklable, silent about secrets."""

from __future__ import annotations

import base64
import copy
import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import counterfoil
import pytest
from counterfoil import (
    Cursor,
    EventId,
    ForeignEventId,
    KeyCheck,
    KeyFileError,
    KeyFileExposed,
    KeyInfo,
    KeyRing,
    KeyRingError,
    MalformedEventId,
    Scope,
    ScopeTooLong,
    StreamToken,
    UnknownEventIdVersion,
)
from hypothesis import given
from hypothesis import strategies as st

#: The longest ID that the grammar allows; docs/wire.md adds it up.
LONGEST = 118
RING = KeyRing.from_secret(bytes([7] * 32), made_s=1)
BIG = 2**53 - 1

texts = st.text("abcXYZ019-_", max_size=24)
request_ids = st.none() | st.integers(-BIG, BIG) | texts
scopes = st.builds(
    Scope, **{part: st.none() | st.text("ab.é", max_size=3) for part in ("tenant", "principal", "session")}
)
streams = st.builds(
    lambda request_id, owner, random: StreamToken.mint(
        kind="call", request_id=request_id, owner=owner, random=random
    ),
    request_ids,
    st.integers(0, 2**32 - 1),
    st.binary(min_size=12, max_size=12),
)
epochs = st.binary(min_size=8, max_size=8).map(
    lambda raw: base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
)


def id_of(scope: Scope, stream: StreamToken, epoch: str, sequence: int = 1) -> EventId:
    digest = RING.digest_chain(scope, stream=stream, epoch=epoch).current
    return RING.event_id(scope, stream=stream, epoch=epoch, sequence=sequence, digest=digest)


def some_id(**scope: str) -> EventId:
    stream = StreamToken.mint(kind="call", request_id=7, random=bytes(range(12)))
    return id_of(Scope(**scope), stream, "AAAAAAAAAAA")


@given(scopes, streams, epochs, st.integers(0, 2**63 - 1))
def test_an_id_survives_the_round_trip_and_can_travel(
    scope: Scope, stream: StreamToken, epoch: str, sequence: int
) -> None:
    event_id = id_of(scope, stream, epoch, sequence)
    text = str(event_id)
    assert EventId.parse(text) == EventId.parse(text.encode()) == event_id
    assert (event_id.stream, event_id.epoch, event_id.sequence) == (stream, epoch, sequence)
    assert event_id.cursor == Cursor(str(stream), epoch, sequence, event_id.digest)
    # Legal as a header value (RFC 9110, 5.5) and in an SSE `id` field; never near the bound.
    assert re.fullmatch(r"[A-Za-z0-9._-]+", text)
    assert len(text) <= LONGEST


def test_the_longest_id_is_as_long_as_documented() -> None:
    stream = StreamToken.mint(kind="call", request_id="x" * 24, owner=2**32 - 1, random=b"\xff" * 12)
    assert len(str(id_of(Scope(), stream, "AAAAAAAAAAA", 2**63 - 1))) == LONGEST


@given(request_ids)
def test_the_request_id_comes_back_with_its_type(request_id: int | str | None) -> None:
    stream = StreamToken.mint(kind="call", request_id=request_id, random=bytes(12))
    read = StreamToken(str(stream)).request_id
    assert read == request_id
    assert type(read) is type(request_id)


@pytest.mark.parametrize("request_id", [BIG + 1, -BIG - 1, 10**40, "x" * 25, "a.b", "é", "\ud800", "a b"])
def test_a_request_id_without_a_place_in_an_id_is_left_out(request_id: int | str) -> None:
    stream = StreamToken.mint(kind="call", request_id=request_id, random=bytes(12))
    assert stream.request_id is None
    assert stream == StreamToken.mint(kind="call", random=bytes(12))


@pytest.mark.parametrize("request_id", [True, 1.0, b"x"])
def test_what_is_no_request_id_is_refused(request_id: Any) -> None:
    with pytest.raises(TypeError):
        StreamToken.mint(kind="call", request_id=request_id, random=bytes(12))


def test_a_standalone_stream_has_no_request_id() -> None:
    with pytest.raises(ValueError, match="standalone"):
        StreamToken.mint(kind="standalone", request_id=1, random=bytes(12))


@pytest.mark.parametrize("sequence", [2**53 + 1, 2**63 - 1])
def test_a_sequence_beyond_2_53_survives_json(sequence: int) -> None:
    stream = StreamToken.mint(kind="call", random=bytes(12))
    event_id = id_of(Scope(), stream, "AAAAAAAAAAA", sequence)
    carried = json.loads(json.dumps({"id": str(event_id)}), parse_int=float)
    assert EventId.parse(carried["id"]).sequence == sequence


def test_the_three_ways_of_being_no_id_are_three_errors() -> None:
    with pytest.raises(ForeignEventId):
        EventId.parse("13")
    with pytest.raises(UnknownEventIdVersion) as version:
        EventId.parse("cf2.\r\nwhatever")
    assert version.value.version == 2
    with pytest.raises(MalformedEventId) as malformed:
        EventId.parse(str(some_id()).replace(".1.", ".01."))
    assert malformed.value.reason == "the sequence has a leading zero"
    assert malformed.value.position == str(some_id()).index(".1.") + 1
    for raised in (version, malformed):
        again = pickle.loads(pickle.dumps(raised.value))
        assert (type(again), str(again), vars(again)) == (
            type(raised.value),
            str(raised.value),
            vars(raised.value),
        )
        assert isinstance(again, ValueError)


@given(
    st.text(max_size=200) | st.binary(max_size=200) | st.text("cf12.AZ-_0", max_size=130).map("cf1.".__add__)
)
def test_any_text_is_an_id_or_a_typed_error(text: str | bytes) -> None:
    try:
        event_id = EventId.parse(text)
    except (ForeignEventId, UnknownEventIdVersion, MalformedEventId):
        return
    assert str(event_id) == (text if isinstance(text, str) else text.decode())


def test_errors_do_not_repeat_the_text() -> None:
    with pytest.raises(MalformedEventId) as raised:
        EventId.parse("cf1.hunter2")
    assert "hunter2" not in str(raised.value)


@given(scopes, scopes, streams, epochs)
def test_an_id_is_verified_in_its_own_scope_and_in_no_other(
    own: Scope, other: Scope, stream: StreamToken, epoch: str
) -> None:
    event_id = id_of(own, stream, epoch)
    assert RING.check(own, event_id) == KeyCheck.VERIFIED
    assert RING.check(other, event_id) == (KeyCheck.VERIFIED if own == other else KeyCheck.FORGED)


def test_a_scope_part_that_is_absent_is_not_an_empty_one() -> None:
    event_id = some_id(tenant="a")
    for scope in (Scope(tenant="a", principal=""), Scope(tenant="a", session=""), Scope(principal="a")):
        assert RING.check(scope, event_id) == KeyCheck.FORGED


def test_a_seal_is_verified_by_whoever_holds_its_key_and_by_nobody_else() -> None:
    seal = RING.seal(b"message").encode()
    assert RING.check_seal(b"message", seal) == KeyCheck.VERIFIED
    assert RING.rotated(bytes(32), now_s=2).check_seal(b"message", seal) == KeyCheck.VERIFIED
    assert KeyRing.from_secret(b"\1" * 32, made_s=1).check_seal(b"message", seal) == KeyCheck.UNKNOWN_KEY
    assert RING.check_seal(b"another", seal) == KeyCheck.FORGED
    for index in range(6, len(seal)):
        changed = seal[:index] + (b"A" if seal[index : index + 1] != b"A" else b"B") + seal[index + 1 :]
        assert RING.check_seal(b"message", changed) == KeyCheck.FORGED


@pytest.mark.parametrize("text", [b"", b"abc", b"\xff" * 49, RING.seal(b"m").encode()[:-1]])
def test_text_that_is_no_seal_is_forged(text: bytes) -> None:
    assert RING.check_seal(b"m", text) == KeyCheck.FORGED


def test_a_check_is_no_bool() -> None:
    with pytest.raises(TypeError, match="KeyCheck"):
        bool(RING.check(Scope(), some_id()))


def test_old_ids_verify_after_a_rotation_until_their_key_is_dropped() -> None:
    old = some_id()
    rotated = RING.rotated(bytes([8] * 32), now_s=100)
    new = rotated.event_id(Scope(), stream=old.stream, epoch=old.epoch, sequence=1, digest=old.digest)
    assert old.key_id != new.key_id
    assert rotated.check(Scope(), old) == rotated.check(Scope(), new) == KeyCheck.VERIFIED
    assert RING.check(Scope(), new) == KeyCheck.UNKNOWN_KEY
    assert old.cursor == new.cursor, "the tag is no part of a cursor's identity"
    assert [(key.signs, key.retired_s) for key in rotated.keys] == [(True, None), (False, 100)]
    assert rotated.without(old.key_id).check(Scope(), old) == KeyCheck.UNKNOWN_KEY
    with pytest.raises(KeyRingError, match="rotate first"):
        rotated.without(new.key_id)
    with pytest.raises(KeyRingError, match="no key"):
        rotated.without("AAAAAA")


def test_a_ring_is_bounded() -> None:
    ring = RING
    for number in range(15):
        ring = ring.rotated(bytes([100 + number] * 32), now_s=1)
    with pytest.raises(KeyRingError, match="16"):
        ring.rotated(bytes([1] * 32), now_s=1)


def test_a_key_cannot_be_in_a_ring_twice() -> None:
    with pytest.raises(KeyRingError, match="twice"):
        RING.rotated(bytes([7] * 32), now_s=1)


def test_only_a_random_ring_is_ephemeral() -> None:
    ring = KeyRing.random()
    assert ring.is_ephemeral
    assert ring != KeyRing.random()
    assert not RING.is_ephemeral
    copied = pickle.loads(pickle.dumps(ring))
    assert copied == ring
    assert copied.is_ephemeral


VECTORS = Path(__file__).resolve().parent / "vectors" / "event_id" / "parse.json"


@pytest.mark.parametrize("row", json.loads(VECTORS.read_text()), ids=lambda row: row["name"])
def test_vectors_shared_with_rust(row: dict[str, Any]) -> None:
    text, expect = row["given"], row["expect"]
    if expect.get("error") == "foreign":
        with pytest.raises(ForeignEventId):
            EventId.parse(text)
    elif expect.get("error") == "version":
        with pytest.raises(UnknownEventIdVersion) as version:
            EventId.parse(text)
        assert version.value.version == expect["version"]
    elif expect.get("error") == "malformed":
        with pytest.raises(MalformedEventId) as malformed:
            EventId.parse(text)
        assert (malformed.value.reason, malformed.value.position) == (expect["reason"], expect["position"])
    else:
        event_id = EventId.parse(text)
        assert str(event_id) == text
        stream = event_id.stream
        assert {
            "stream": str(stream),
            "kind": stream.kind,
            "request_id": stream.request_id,
            "owner": stream.owner,
            "epoch": event_id.epoch,
            "key_id": event_id.key_id,
            "tag": event_id.tag,
            "sequence": str(event_id.sequence),
            "digest": event_id.digest,
        } == expect


VALUES = [
    Scope(),
    Scope(tenant="a", principal="b", session="c"),
    StreamToken.mint(kind="standalone", owner=3, random=bytes(12)),
    some_id(),
    some_id().cursor,
    RING,
    RING.rotated(bytes([8] * 32), now_s=9),
    KeyCheck.FORGED,
    RING.keys[0],
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_copy_pickle_and_hash(value: object) -> None:
    copies = [copy.copy(value), copy.deepcopy(value)]
    copies += [
        pickle.loads(pickle.dumps(value, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
    ]
    for made in copies:
        assert made == value
        assert hash(made) == hash(value)
        assert type(made) is type(value)
        assert repr(made) == repr(value)
    assert type(value).__module__ == "counterfoil"
    assert getattr(counterfoil, type(value).__name__) is type(value)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_are_frozen(value: object) -> None:
    with pytest.raises((AttributeError, TypeError)):
        value.sequence = 1  # type: ignore[attr-defined]


def test_values_that_can_be_written_show_how() -> None:
    names = {"StreamToken": StreamToken, "EventId": EventId, "Cursor": Cursor, "KeyInfo": KeyInfo}
    for value in VALUES:
        if type(value).__name__ in names:
            assert eval(repr(value), names) == value


def test_no_secret_is_shown() -> None:
    scope = Scope(tenant="acme", principal="alice", session="s3cret")
    secret = base64.urlsafe_b64encode(bytes([7] * 32)).decode().rstrip("=")
    shown = f"{RING!r} {RING!s} {scope!r} {RING.keys!r}"
    assert secret in RING.to_text()
    for hidden in (secret, "alice", "s3cret"):
        assert hidden not in shown
    assert "acme" in shown


def test_scope_parts_are_bounded() -> None:
    with pytest.raises(ScopeTooLong) as raised:
        Scope(session="é" * 2049)
    assert (raised.value.part, raised.value.limit) == ("session", 4096)
    assert Scope(session="é" * 2048).session == "é" * 2048


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_key_file_is_read_back(tmp_path: Path) -> None:
    ring = RING.rotated(bytes([8] * 32), now_s=9)
    path = write(tmp_path / "keys", ring.to_text())
    assert KeyRing.from_file(path) == KeyRing.from_file(str(path)) == ring


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o777])
def test_a_key_file_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path / "keys", RING.to_text(), mode)
    with pytest.raises(KeyFileExposed, match=f"{mode:04o}.*chmod 600") as raised:
        KeyRing.from_file(path)
    assert raised.value.path == str(path)
    assert isinstance(raised.value, (KeyFileError, PermissionError))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a key file"),
        ("counterfoil-keys 2\n", "version 2"),
        ("counterfoil-keys +1\n", "not a key file"),
        ("counterfoil-keys 01\n", "not a key file"),
        ("Counterfoil-Keys 1\n", "not a key file"),
        ("counterfoil-keys 1\n", "exactly one `sign`"),
        (RING.to_text() + RING.to_text().splitlines()[2] + "\n", "exactly one `sign`"),
        (RING.to_text().replace("BwcH", "BwcI", 1), "does not belong"),
        (RING.to_text().replace("sign ", "sign  "), "line 3"),
        (RING.to_text() + "verify x y\n", "line 4"),
        (RING.to_text() + "#" * 20_000, "longer than"),
    ],
)
def test_a_damaged_key_file_is_refused_without_showing_it(tmp_path: Path, text: str, reason: str) -> None:
    for read in (
        lambda: KeyRing.from_file(write(tmp_path / "keys", text)),
        lambda: KeyRing.from_text(text),
    ):
        with pytest.raises(KeyFileError, match=reason) as raised:
            read()
        assert "BwcH" not in str(raised.value)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="No such file"):
        KeyRing.from_file(tmp_path / "absent")
    with pytest.raises(KeyFileError, match="not a regular file"):
        KeyRing.from_file(tmp_path)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    with pytest.raises(KeyFileError, match="not a regular file"):
        KeyRing.from_file(fifo)


def test_the_digest_chain_is_told_by_every_earlier_event() -> None:
    stream = StreamToken.mint(kind="standalone", random=bytes(12))
    chains = [RING.digest_chain(Scope(), stream=stream, epoch="AAAAAAAAAAA") for _ in range(2)]
    assert chains[0].current == chains[1].current
    assert chains[0].append(1, data=b"a") == chains[1].append(1, event=b"message", data=b"a")
    assert chains[0].append(2, data=b"b") != chains[1].append(2, data=b"c")
    assert chains[0].append(3, data=b"d") != chains[1].append(3, data=b"d")
