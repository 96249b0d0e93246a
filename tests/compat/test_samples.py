"""A released sample must be read for ever, and to the same meaning; the samples themselves never change."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from counterfoil import EventId, KeyCheck, KeyRing, Scope
from counterfoil.protocol.continuity import (
    ConnectionComment,
    ContinuityClaim,
    ContinuityRequest,
    read_claim,
    read_comment,
    read_request,
    write_claim,
    write_comment,
    write_request,
)
from counterfoil.protocol.inband_error import InbandError, read_inband_error, write_inband_error

V1 = Path(__file__).resolve().parent / "v1"
#: A sample that was released is history.  New forms get new files or a new version, never an edit here.
PINNED = {
    "continuity.json": "2d34fc100518865c346ac25db316e092041958d6394a62f03d57441ddbf7a467",
    "digests.json": "6e907d9ad8a62d745c5bd455958676af165b9d80b3e6161385d4f2dc240181ff",
    "event_ids.json": "5ffc7f14a8734e70c57573dd11bdd17507fd1770371e93804adb02ca9b9e28c3",
    "inband_errors.json": "5bac4f40d876213fa86cfb8f54ae4bf559f7271369acc4fac0e1142f85bfd017",
    "key_file.txt": "5bf32a4860121e444bfdabc89f8f0ce0dfbdc7c25e6db6fd7f6cc6b89f808423",
}


def rows(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("sample", json.loads((V1 / name).read_text()), ids=lambda row: row["name"])


def test_the_samples_are_those_that_were_released() -> None:
    found = {name: hashlib.sha256((V1 / name).read_bytes()).hexdigest() for name in PINNED}
    assert found == PINNED


def test_the_key_file_is_read() -> None:
    ring = KeyRing.from_text((V1 / "key_file.txt").read_text())
    assert [(key.id, key.signs, key.made_s, key.retired_s) for key in ring.keys] == [
        ("KGDN4v", True, 1_760_000_000, None),
        ("-HDDY_", False, 1_700_000_000, 1_760_000_000),
    ]


@rows("event_ids.json")
def test_an_event_id_is_read_verified_and_written_back(sample: dict[str, Any]) -> None:
    event_id = EventId.parse(sample["id"])
    assert str(event_id) == sample["id"]
    stream = event_id.stream
    assert (stream.kind, stream.request_id, stream.owner) == (
        sample["kind"],
        sample["request_id"],
        sample["owner"],
    )
    assert (event_id.epoch, event_id.key_id) == (sample["epoch"], sample["key_id"])
    assert (str(event_id.sequence), event_id.digest) == (sample["sequence"], sample["digest"])
    ring = KeyRing.from_text((V1 / "key_file.txt").read_text())
    assert ring.check(Scope(**sample["scope"]), event_id) == KeyCheck.VERIFIED


@rows("continuity.json")
def test_a_continuity_text_keeps_its_meaning_and_its_one_form(sample: dict[str, Any]) -> None:
    text, where = sample["text"], sample["where"]
    read: ContinuityClaim | ConnectionComment | ContinuityRequest | None
    if where == "header":
        claim = read_claim(text)
        read, written = claim, write_claim(claim)
    elif where == "request":
        request = read_request(text)
        read, written = request, write_request(request)
    else:
        comment = read_comment(text)
        assert comment is not None
        read, written = comment, write_comment(comment).decode()[2:-2]
    assert written == text
    members = {name: value for name, value in msgspec.to_builtins(read).items() if value is not None}
    assert {name: sorted(v) if isinstance(v, list) else v for name, v in members.items()} == sample["value"]


@rows("inband_errors.json")
def test_an_in_band_error_keeps_its_meaning(sample: dict[str, Any]) -> None:
    expected = msgspec.convert(sample["value"], InbandError)
    assert read_inband_error(sample["text"]) == expected
    # `error.message` may change; everything else is the format.
    ours, theirs = json.loads(write_inband_error(expected)), json.loads(sample["text"])
    ours["error"].pop("message")
    theirs["error"].pop("message")
    assert ours == theirs
