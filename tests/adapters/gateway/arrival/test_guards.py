"""A foreign host or origin gets nothing, whatever else the request says."""

from __future__ import annotations

from typing import Any

import pytest
from counterfoil.adapters.gateway.arrival.guards import Guards
from counterfoil.adapters.gateway.arrival.inbound import Inbound, read_inbound
from counterfoil.errors import RequestRefused


def request(**headers: str) -> Inbound:
    fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope: dict[str, Any] = {"method": "POST", "path": "/mcp", "headers": fields, "client": ("127.0.0.1", 1)}
    return read_inbound(scope, max_header_bytes=8_192)


@pytest.mark.parametrize("host", ["localhost", "localhost:81", "127.0.0.1:8080", "[::1]:9", "LOCALHOST"])
def test_loopback_names_are_allowed_by_default(host: str) -> None:
    Guards().check(request(host=host))


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io:80", "[::2]", ""]
)
def test_another_host_is_misdirected(host: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        Guards().check(request(host=host))
    assert refused.value.status == 421


def test_a_request_without_a_host_is_misdirected() -> None:
    with pytest.raises(RequestRefused):
        Guards().check(request())


def test_a_host_listed_with_its_port_allows_that_port_only() -> None:
    guards = Guards(["mcp.example:443"])
    guards.check(request(host="mcp.example:443"))
    with pytest.raises(RequestRefused):
        guards.check(request(host="mcp.example:80"))


@pytest.mark.parametrize(
    "origin", ["null", "https://evil.example", "http://localhost:81", "file://localhost:80"]
)
def test_another_origin_is_forbidden(origin: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        Guards().check(request(host="localhost:80", origin=origin))
    assert refused.value.status == 403


def test_the_own_origin_and_listed_ones_are_allowed() -> None:
    guards = Guards(origins=["https://app.example"])
    guards.check(request(host="localhost:80", origin="http://localhost:80"))
    guards.check(request(host="localhost:80", origin="https://app.example"))


def test_a_star_allows_all() -> None:
    Guards(["*"], ["*"]).check(request(host="any.example", origin="https://other.example"))
