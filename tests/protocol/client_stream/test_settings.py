"""Settings are a value with defaults that fail closed."""

from __future__ import annotations

import pytest
from counterfoil.model.tokens import StreamKind
from counterfoil.protocol.client_stream.settings import OnLostStream, OnUnverifiable, StreamSettings
from counterfoil.protocol.revisions import REVISIONS


def settings(revision: str) -> StreamSettings:
    return StreamSettings(server="x", stream="l", kind=StreamKind.CALL, revision=revision)


def test_defaults_fail_closed() -> None:
    defaults = settings("2025-11-25")
    assert defaults.on_unverifiable is OnUnverifiable.END_STREAM
    assert defaults.on_lost_stream is OnLostStream.ASK
    assert defaults.reconnect.failures == 8


@pytest.mark.parametrize("revision", [*REVISIONS, "1999-01-01"])
def test_resumable_is_what_the_revision_says(revision: str) -> None:
    known = REVISIONS.get(revision)
    assert settings(revision).is_resumable is (known is not None and known.has_resumption)
