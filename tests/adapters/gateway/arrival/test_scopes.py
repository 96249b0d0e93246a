"""Whose request it is comes from somebody who can be believed, or the request is refused."""

from __future__ import annotations

import time
from typing import Any

import jwt
import pytest
from counterfoil.adapters.gateway.arrival.inbound import Inbound, read_inbound
from counterfoil.adapters.gateway.arrival.scopes import (
    HeaderSource,
    Identity,
    JwtSource,
    Scopes,
    make_scopes,
    scope_from_header,
)
from counterfoil.errors import ConfigError, RequestRefused

SECRET = "a secret of at least thirty-two bytes"
KEYS = {
    "keys": [
        {"kty": "oct", "kid": "k1", "alg": "HS256", "k": jwt.utils.base64url_encode(SECRET.encode()).decode()}
    ]
}


def request(peer: str = "10.1.2.3", **headers: str) -> Inbound:
    fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope: dict[str, Any] = {"method": "POST", "path": "/", "headers": fields, "client": (peer, 1)}
    return read_inbound(scope, max_header_bytes=8_192)


def bearer(**changes: Any) -> Inbound:
    claims = {"sub": "alice", "aud": "mcp", "exp": time.time() + 60} | changes
    claims = {name: value for name, value in claims.items() if value is not None}
    token = jwt.encode(claims, SECRET, algorithm="HS256", headers={"kid": "k1"})
    return request(authorization=f"Bearer {token}")


def test_a_trusted_proxy_says_tenant_and_principal() -> None:
    scopes = scope_from_header("X-Tenant", trusted_proxies=["10.0.0.0/8"], principal="X-User")
    assert scopes.identify(request(x_tenant="t", x_user="alice")) == Identity("t", "alice")
    assert scopes.internal_fields == {b"x-tenant", b"x-user"}


@pytest.mark.parametrize("peer", ["11.1.1.1", "", "not an address", "::1"])
def test_nobody_else_is_believed(peer: str) -> None:
    scopes = scope_from_header("x-tenant", trusted_proxies=["10.0.0.0/8"])
    with pytest.raises(RequestRefused) as refused:
        scopes.identify(request(peer, x_tenant="t"))
    assert refused.value.status == 401


def test_a_missing_identity_is_refused_not_guessed() -> None:
    scopes = scope_from_header("x-tenant", trusted_proxies=["10.0.0.0/8"])
    for headers in ({}, {"x_tenant": ""}, {"x_tenant": "x" * 300}):
        with pytest.raises(RequestRefused):
            scopes.identify(request(**headers))


def test_without_proxies_a_header_source_does_not_start() -> None:
    with pytest.raises(ConfigError, match="trusted_proxies"):
        HeaderSource("x-tenant", [])


def test_a_claim_counts_if_its_token_verifies() -> None:
    scopes = Scopes(principal=JwtSource("sub", KEYS, audience="mcp"))
    assert scopes.identify(bearer()) == Identity(None, "alice")


@pytest.mark.parametrize(
    "inbound",
    [
        bearer(aud="other"),
        bearer(exp=1),
        bearer(exp=None),
        bearer(sub=7),
        request(authorization="Bearer rubbish"),
        request(authorization="Basic YTpi"),
        request(),
        request(authorization="Bearer " + jwt.encode({"sub": "eve"}, "x" * 40, headers={"kid": "k1"})),
        request(authorization="Bearer " + jwt.encode({"sub": "eve"}, "x" * 40, headers={"kid": "k2"})),
    ],
)
def test_a_token_that_does_not_verify_is_nobody(inbound: Inbound) -> None:
    with pytest.raises(RequestRefused) as refused:
        Scopes(principal=JwtSource("sub", KEYS, audience="mcp")).identify(inbound)
    assert refused.value.status == 401


def test_a_claim_without_an_audience_does_not_start() -> None:
    with pytest.raises(ConfigError, match="audience"):
        JwtSource("sub", KEYS, audience=None)


def test_a_function_of_the_request_may_say_whose_it_is() -> None:
    told: dict[str, Identity | str | None] = {
        "/a": "tenant-a",
        "/b": Identity(tenant="b", principal="ann"),
        "/c": None,
        "/d": "",
        "/e": Identity(principal="x" * 257),
    }

    def identify(path: str) -> Identity:
        scope: dict[str, Any] = {"method": "GET", "path": path, "headers": []}
        function = make_scopes(lambda inbound: told[inbound.target.decode()])
        return function.identify(read_inbound(scope, max_header_bytes=100))

    assert identify("/a") == Identity(tenant="tenant-a")
    assert identify("/b") == Identity(tenant="b", principal="ann")
    for nobody in ("/c", "/d", "/e"):
        with pytest.raises(RequestRefused) as refused:
            identify(nobody)
        assert refused.value.status == 401
