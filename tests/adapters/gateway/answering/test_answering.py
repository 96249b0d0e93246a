"""Each request is answered in its way, and what needs nothing of the gateway passes as it came."""

from __future__ import annotations

import anyio
import httpx2
import pytest
from counterfoil.adapters.gateway.application import Gateway
from counterfoil.adapters.serving import serving
from gateway_kit import Exchange, Raw, Upstream, scripted

pytestmark = pytest.mark.anyio

THEIRS = "theirs-1"


async def answers(x: Exchange) -> None:
    await x.start()
    await x.result(event_id=THEIRS)
    await x.end()


@pytest.mark.parametrize(
    ("revision", "has_session", "is_ours"),
    [
        ("2025-03-26", True, True),
        ("2025-06-18", True, True),
        ("2025-11-25", True, True),
        ("2025-11-25", False, False),  # nothing tells its caller from others
        ("2026-07-28", True, False),  # it has no resumption
        ("1999-12-31", True, False),  # nobody knows what it has
    ],
)
async def test_a_call_gets_ids_of_ours_exactly_where_it_can_be_resumed_by_them(
    revision: str, has_session: bool, is_ours: bool
) -> None:
    with anyio.fail_after(10):
        async with scripted(Upstream(answers)) as (raw, behind):
            raw.fields["mcp-protocol-version"] = revision
            if not has_session:
                del raw.fields["mcp-session-id"]
            async with raw.call() as stream:
                assert (await stream.rest())[-1]["result"] == "done"
            assert bool(stream.claim) is is_ours
            assert (stream.events[-1].id != THEIRS) is is_ours
            assert bool(behind.store.statistics().appended) is is_ours


@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS", "PUT"])
async def test_what_names_no_session_and_no_call_passes_whatever_its_method(method: str) -> None:
    upstream = Upstream(answers)
    with anyio.fail_after(10):
        async with scripted(upstream) as (raw, _):
            del raw.fields["mcp-session-id"]
            async with raw.http.stream(method, raw.url, headers=raw.fields) as answer:
                assert "stream-continuity" not in answer.headers
            assert upstream.seen[-1].method == method


async def test_a_revision_above_the_bound_is_told_as_unknown_and_never_sent() -> None:
    upstream = Upstream(answers)
    with anyio.fail_after(10):
        async with scripted(upstream, max_revision="2025-11-25") as (raw, _):
            seen = len(upstream.seen)
            refused = await raw.post("server/discover", request_id="d", mcp_protocol_version="2026-07-28")
            assert (refused.status_code, refused.json()["id"]) == (400, "d")
            assert refused.json()["error"]["code"] == -32_601
            assert len(upstream.seen) == seen
            async with raw.call() as stream:
                assert (await stream.rest())[-1]["result"] == "done"


async def test_without_a_store_everything_passes_as_it_is() -> None:
    upstream = Upstream(answers)
    with anyio.fail_after(10):
        async with serving(upstream) as port:
            gateway = Gateway(upstream=f"http://127.0.0.1:{port}/mcp")
            async with serving(gateway) as own, httpx2.AsyncClient(timeout=20) as http:
                raw = Raw(http, f"http://127.0.0.1:{own}")
                await raw.initialize()
                async with raw.call(last_event_id="cf1.x") as stream:
                    assert (await stream.rest())[-1]["result"] == "done"
                assert (stream.claim, stream.events[-1].id) == ("", THEIRS)
                assert upstream.seen[-1].headers["last-event-id"] == "cf1.x"
                assert (await http.delete(raw.url, headers=raw.fields)).status_code == 200
                assert upstream.count("DELETE") == 1
