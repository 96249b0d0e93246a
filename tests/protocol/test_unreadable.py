"""Bytes of a peer that are no message end nothing of ours, however they are wrong."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from counterfoil.adapters.client.messages import read_error, read_response
from counterfoil.adapters.gateway.wire.messages import MessageKind, read_message
from counterfoil.adapters.gateway.wire.rewriting import read_rpc
from counterfoil.protocol.client_stream.envelope import Body, read_envelope
from counterfoil.protocol.inband_error import read_inband_error
from counterfoil.protocol.unreadable import UNREADABLE

DEEP = b"[" * 100_000 + b"]" * 100_000

BAD = [
    pytest.param(b"", id="empty"),
    pytest.param(b"{", id="cut"),
    pytest.param(b'{"jsonrpc":"2.0","method":"\xff"}', id="no UTF-8"),
    pytest.param(DEEP, id="deep"),
    pytest.param(b'{"jsonrpc":"2.0","method":"m","id":' + DEEP + b"}", id="deep id"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"result":' + DEEP + b"}", id="deep result"),
    pytest.param(b'{"jsonrpc":"2.0","id":1,"error":' + DEEP + b"}", id="deep error"),
]


@pytest.mark.parametrize("data", BAD)
def test_it_is_read_as_no_message_of_ours(data: bytes) -> None:
    assert read_envelope(data).body is not Body.JSON_RPC
    assert read_inband_error(data) is None
    assert read_message(data).kind in (MessageKind.OTHER, MessageKind.BATCH)
    assert read_rpc(data) is None
    assert read_response(data, 1) is None


def test_an_error_nested_too_deep_is_none() -> None:
    assert read_error(b'{"code":1,"message":"m","data":' + DEEP + b"}") is None


@pytest.mark.parametrize("data", BAD)
@pytest.mark.parametrize("decode", [msgspec.json.decode, msgspec.json.Decoder(dict[str, str]).decode])
def test_every_decoder_raises_only_what_is_named(data: bytes, decode: Callable[[bytes], object]) -> None:
    with pytest.raises(UNREADABLE):
        decode(data)
