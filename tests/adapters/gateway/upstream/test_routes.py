"""The longest prefix of whole segments wins, and `upstream=` takes what it says it takes."""

from __future__ import annotations

from typing import Any

import pytest
from counterfoil.adapters.gateway.arrival.inbound import Inbound, read_inbound
from counterfoil.adapters.gateway.upstream.routes import (
    ChosenRoutes,
    Found,
    Route,
    Routes,
    make_routes,
    make_routes_to,
)
from counterfoil.adapters.gateway.upstream.upstream_app import AppUpstream
from counterfoil.adapters.gateway.upstream.upstream_url import UrlUpstream
from counterfoil.errors import ConfigError, RequestRefused

pytestmark = pytest.mark.anyio


def request(path: str, query: bytes = b"") -> Inbound:
    scope: dict[str, Any] = {"method": "GET", "path": path, "query_string": query, "headers": []}
    return read_inbound(scope, max_header_bytes=100)


async def app(_scope: Any, _receive: Any, _send: Any) -> None:
    raise AssertionError("not called")


async def test_the_longest_prefix_wins() -> None:
    short, long = UrlUpstream("http://short/x"), UrlUpstream("http://long/y")
    routes = Routes([Route(short, b"/mcp"), Route(long, b"/mcp/deep")])
    assert await routes.find(request("/mcp/deep/er")) == Found(long, b"/er")
    assert await routes.find(request("/mcp", b"q=1")) == Found(short, b"?q=1")
    for other in ("/mcpx", "/", "/other"):
        with pytest.raises(RequestRefused) as refused:
            await routes.find(request(other))
        assert refused.value.status == 404


async def test_a_url_answers_under_its_own_path_and_at_the_root_of_a_mount() -> None:
    routes = make_routes("http://127.0.0.1:1/mcp")
    assert (await routes.find(request("/mcp"))).target == b""
    assert (await routes.find(request("/"))).target == b""
    with pytest.raises(RequestRefused):
        await routes.find(request("/admin"))


async def test_an_app_sees_the_path_as_it_came() -> None:
    found = await make_routes(app).find(request("/mcp"))
    assert isinstance(found.upstream, AppUpstream)
    assert found.target == b"/mcp"


def test_a_function_of_the_request_is_no_app() -> None:
    assert isinstance(make_routes(lambda _inbound: "http://a/mcp"), ChosenRoutes)


def test_no_route_is_an_error() -> None:
    with pytest.raises(ConfigError):
        make_routes([])


METADATA = "/.well-known/oauth-protected-resource"


async def test_metadata_is_found_by_the_path_that_it_is_about() -> None:
    one, two = UrlUpstream("http://one/mcp"), UrlUpstream("http://two/deep/er/")
    routes = Routes(
        [
            *make_routes_to(one, "http://one/mcp", prefix="/one"),
            *make_routes_to(two, "http://two/deep/er/", prefix="/two"),
        ]
    )
    for path, found in (
        ("/one", Found(one, b"/.well-known/oauth-protected-resource/mcp", is_rooted=True)),
        ("/one/below", Found(one, b"/.well-known/oauth-protected-resource/mcp/below", is_rooted=True)),
        ("/two", Found(two, b"/.well-known/oauth-protected-resource/deep/er", is_rooted=True)),
    ):
        assert await routes.find(request(METADATA + path)) == found
    asked = await routes.find(request("/.well-known/openid-configuration/one", b"a=1"))
    assert asked.target == b"/.well-known/openid-configuration/mcp?a=1"
    for other in ("", "/three", "/onely"):
        with pytest.raises(RequestRefused):
            await routes.find(request(METADATA + other))


async def test_the_only_upstream_has_the_metadata_of_its_path_and_of_its_origin() -> None:
    routes = make_routes("http://127.0.0.1:1/mcp")
    assert (await routes.find(request(METADATA + "/mcp"))).target == METADATA.encode() + b"/mcp"
    assert (await routes.find(request(METADATA))).target == METADATA.encode()
    with pytest.raises(RequestRefused):
        await routes.find(request("/.well-known/other"))
