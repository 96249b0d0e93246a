"""`docs/wire.md` suffices to write another implementation: this one, from the standard library and xxHash."""

from __future__ import annotations

import base64
import hmac
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
import xxhash
from counterfoil import KeyCheck, KeyRing, Scope, StreamToken
from counterfoil.model.tokens import Executed, Next, VerdictToken, Why
from counterfoil.native import EventId
from counterfoil.protocol import continuity, inband_error

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "wire.md").read_text()
SAMPLES = Path(__file__).resolve().parent / "v1"


def example(name: str) -> str:
    found = re.findall(rf"<!-- example: {name} -->\n```\n(.*?)```\n", DOCUMENT, re.DOTALL)
    assert len(found) == 1, f"docs/wire.md has {len(found)} examples called {name}"
    return str(found[0])


def values(name: str) -> dict[str, str]:
    return {line[:10].strip(): line[11:] for line in example(name).splitlines()}


# --- another implementation, written from the page alone


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def field(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else struct.pack(">I", len(value)) + value


def mac_input(label: bytes, scope: dict[str, str], stream: str, epoch: str) -> bytes:
    parts = [scope.get(name) for name in ("tenant", "principal", "session")]
    fields = [b"cf1", label, *(part if part is None else part.encode() for part in parts)]
    return b"".join(map(field, [*fields, stream.encode(), unb64(epoch)]))


def key_id(key: bytes) -> str:
    return b64(hmac.digest(key, field(b"cf1") + field(b"key-id"), "sha256"))[:6]


def tag(key: bytes, scope: dict[str, str], stream: str, epoch: str) -> str:
    return key_id(key) + b64(hmac.digest(key, mac_input(b"tag", scope, stream, epoch), "sha256")[:12])


def digests(
    key: bytes, scope: dict[str, str], stream: str, epoch: str, events: list[tuple[str, str]]
) -> list[str]:
    secret = hmac.digest(key, mac_input(b"digest", scope, stream, epoch), "sha256")
    state, seed = struct.unpack("<QQ", secret[:16])
    states = [state]
    for number, (event, data) in enumerate(events, 1):
        kind = "" if event == "message" else event
        hashes = [xxhash.xxh3_64_intdigest(text.encode(), seed) for text in (kind, data)]
        state = xxhash.xxh3_64_intdigest(struct.pack("<QQQQ", state, number, *hashes), seed)
        states.append(state)
    return [b64(struct.pack(">Q", state)) for state in states]


# --- the page, the implementation above and the library agree


def test_the_tag_example() -> None:
    given = values("tag")
    key, scope = unb64(given["key"]), {"tenant": given["tenant"], "session": given["session"]}
    stream, epoch = given["stream"], given["epoch"]
    assert mac_input(b"tag", scope, stream, epoch).hex() == given["input"]
    assert key_id(key) == given["key id"]
    assert unb64(tag(key, scope, stream, epoch)[6:]).hex() == given["mac"]
    assert tag(key, scope, stream, epoch) == given["tag"]
    digest = values("digest")["d(2)"]
    assert f"cf1.{stream}.{epoch}.{given['tag']}.2.{digest}" == given["id"]
    ring = KeyRing.from_secret(key, made_s=0)
    assert ring.check(Scope(**scope), EventId.parse(given["id"])) == KeyCheck.VERIFIED


def test_the_digest_example() -> None:
    given = values("digest")
    key, scope = unb64(given["key"]), {"tenant": given["tenant"], "session": given["session"]}
    stream, epoch = given["stream"], given["epoch"]
    assert hmac.digest(key, mac_input(b"digest", scope, stream, epoch), "sha256").hex() == given["S"]
    expected = [given["d(0)"], given["d(1)"], given["d(2)"]]
    assert digests(key, scope, stream, epoch, [("", given["event 1"]), ("", given["event 2"])]) == expected
    ring = KeyRing.from_secret(key, made_s=0)
    chain = ring.digest_chain(Scope(**scope), stream=StreamToken(stream), epoch=epoch)
    ours = [chain.current, *(chain.append(n, data=given[f"event {n}"].encode()) for n in (1, 2))]
    assert ours == expected


@pytest.mark.parametrize(
    "sample", json.loads((SAMPLES / "digests.json").read_text()), ids=lambda s: s["name"]
)
def test_the_other_implementation_agrees_on_every_digest(sample: dict[str, Any]) -> None:
    events = [(event, data) for event, data in sample["events"]]
    key = unb64(sample["secret"])
    assert digests(key, sample["scope"], sample["stream"], sample["epoch"], events) == sample["digests"]


@pytest.mark.parametrize(
    "sample", json.loads((SAMPLES / "event_ids.json").read_text()), ids=lambda s: s["name"]
)
def test_the_other_implementation_agrees_on_every_tag(sample: dict[str, Any]) -> None:
    keys = [unb64(line.split()[2]) for line in (SAMPLES / "key_file.txt").read_text().splitlines()[2:]]
    _, stream, epoch, written, _, _ = sample["id"].split(".")
    (key,) = [key for key in keys if key_id(key) == written[:6]]
    assert tag(key, sample["scope"], stream, epoch) == written


def test_the_comments_of_the_page_are_ours() -> None:
    for line in example("comments").splitlines():
        comment = continuity.read_comment(line.removeprefix(": "))
        assert comment is not None
        assert continuity.write_comment(comment) == f"{line}\n\n".encode()


def test_every_member_and_token_is_on_the_page() -> None:
    section = DOCUMENT.split("## 5.")[1].split("## 6.")[0]
    for name in continuity.ContinuityClaim.__struct_fields__:
        assert f"`{name}`" in section
    for closed in (VerdictToken, Next, Executed, continuity.CallToken):
        for token in closed:
            assert f"`{token}`" in section
    for want in (*continuity.Want, *continuity.CommentKind):
        assert f"`{want}`" in section


def test_every_reason_on_the_page_is_one_of_ours() -> None:
    table = DOCUMENT.split("### Reasons")[1].split("###")[0]
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) == 8
    named = {word for row in rows for word in re.findall(r"`([a-z-]+)`", row)}
    assert len(named) > 25
    assert named <= set(Why)


def test_the_in_band_error_of_the_page_is_ours() -> None:
    text = example("inband").strip()
    error = inband_error.read_inband_error(text)
    assert error is not None
    assert inband_error.write_inband_error(error).decode() == text
    assert f"**−{-inband_error.CODE}**" in DOCUMENT


def test_the_key_file_of_the_page_is_ours() -> None:
    text = example("key file")
    ring = KeyRing.from_text(text)
    assert ring.to_text() == text
    assert len(ring.keys) == 2


def test_the_lengths_of_the_page_add_up() -> None:
    assert "3 + 47 + 11 + 22 + 19 + 11 = 113" in DOCUMENT
    stream = StreamToken.mint(kind="call", request_id="x" * 24, random=bytes(12))
    assert 3 + 47 + 11 + 22 + 19 + 11 == 113
    assert len(str(stream)) == 47
    ring = KeyRing.random()
    longest = ring.event_id(Scope(), stream=stream, epoch="A" * 11, sequence=2**63 - 1, digest="A" * 11)
    assert len(str(longest)) == 118
