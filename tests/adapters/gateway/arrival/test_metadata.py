"""Metadata of a protected resource is there for who has no token yet, at its upstream's own place."""

from __future__ import annotations

import httpx2
import pytest
from counterfoil.adapters.gateway.application import Gateway
from counterfoil.adapters.gateway.arrival.scopes import scope_from_header
from counterfoil.adapters.gateway.upstream.routes import make_routes_to
from counterfoil.adapters.gateway.upstream.upstream_url import UrlUpstream
from counterfoil.adapters.gateway.wire.headers import HeaderPolicy
from counterfoil.adapters.serving import serving
from counterfoil.native import KeyRing
from counterfoil.stores.replay.store import ReplayStore

pytestmark = pytest.mark.anyio

RESOURCE = "/.well-known/oauth-protected-resource"


async def resource_server(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
    """Tell the path and the fields that were asked for."""
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": f"{message['type']}.complete"})
        return
    names = b",".join(name for name, _ in scope["headers"])
    headers = [(b"x-path", scope["raw_path"]), (b"x-fields", names), (b"x-hidden", b"1")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": scope["method"].encode()})


async def test_it_is_passed_without_an_identity_to_the_place_where_the_upstream_keeps_it() -> None:
    async with serving(resource_server) as upstream:
        url = f"http://127.0.0.1:{upstream}/deep/mcp"
        policy = HeaderPolicy(
            drop=frozenset({b"x-drop"}),
            add=((b"x-key", b"1"),),
            drop_from_answers=frozenset({b"x-hidden"}),
        )
        gateway = Gateway(
            upstream=make_routes_to(UrlUpstream(url, headers=policy), url, prefix="/one"),
            store=ReplayStore(keys=KeyRing.random()),
            scope=scope_from_header("x-tenant", trusted_proxies=["10.0.0.0/8"], principal="x-user"),
        )
        async with (
            serving(gateway) as port,
            httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
        ):
            found = await client.get(f"{RESOURCE}/one", headers={"x-drop": "1", "x-tenant": "mallory"})
            assert (found.status_code, found.text) == (200, "GET")
            assert found.headers["x-path"] == f"{RESOURCE}/deep/mcp"
            assert "x-hidden" not in found.headers
            fields = found.headers["x-fields"].split(",")
            assert "x-key" in fields
            assert not {"x-drop", "x-tenant"} & set(fields)
            appended = await client.get("/one/.well-known/openid-configuration")
            assert appended.headers["x-path"] == "/deep/mcp/.well-known/openid-configuration"
            options = await client.options(f"{RESOURCE}/one")
            assert options.text == "OPTIONS"
            assert (await client.get(f"{RESOURCE}/two")).status_code == 404
            # Everything else still needs to know whose it is.
            for refused in (await client.get("/one"), await client.post(f"{RESOURCE}/one", json={})):
                assert refused.status_code in (401, 404)
