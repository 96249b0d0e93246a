"""The headers of a question: the cursor only with a GET, and what the revision knows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from counterfoil.model.evidence import Asked
from counterfoil.model.tokens import StreamKind
from counterfoil.protocol.client_stream.asking import headers_for
from counterfoil.protocol.client_stream.settings import StreamSettings
from counterfoil.protocol.client_stream.track import AskedWith
from counterfoil.protocol.continuity import Want, read_request
from counterfoil.protocol.revisions import REVISIONS

SETTINGS = StreamSettings(server="x", stream="l", kind=StreamKind.CALL, revision="2025-11-25")


def ask(asked: AskedWith, *, is_post: bool = False, **changes: Any) -> dict[str, str]:
    settings = msgspec.structs.replace(SETTINGS, **changes)
    return headers_for(settings, asked, session_id="s", is_post=is_post)


def test_cursor_goes_with_a_get_only() -> None:
    asked = AskedWith(Asked.OPAQUE, "x-1")
    assert ask(asked)["last-event-id"] == "x-1"
    assert "last-event-id" not in ask(asked, is_post=True)
    assert "last-event-id" not in ask(AskedWith(Asked.NO_CURSOR))


def test_get_takes_a_stream_only_and_nothing_compressed() -> None:
    assert ask(AskedWith(Asked.FIRST))["accept"] == "text/event-stream"
    assert ask(AskedWith(Asked.FIRST))["accept-encoding"] == "identity"
    assert "application/json" in ask(AskedWith(Asked.FIRST), is_post=True)["accept"]


@pytest.mark.parametrize("revision", REVISIONS)
def test_revision_header_where_the_revision_has_one(revision: str) -> None:
    headers = ask(AskedWith(Asked.FIRST), revision=revision)
    assert ("mcp-protocol-version" in headers) is REVISIONS[revision].has_revision_header


def test_strict_always_and_new_after_an_accepted_loss() -> None:
    plain = read_request(ask(AskedWith(Asked.CF1, "x"))["stream-continuity"])
    anew = read_request(ask(AskedWith(Asked.ACCEPTED))["stream-continuity"])
    assert plain.want == {Want.STRICT}
    assert anew.want == {Want.STRICT, Want.NEW}
