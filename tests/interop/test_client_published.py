"""Our client against both majors of the Python SDK with an example store, cut anywhere: one effect at most.

The store is shared by all sessions and names its streams by the request's id, which is why other clients get
each other's answers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from counterfoil.adapters.client.connection import Connection
from counterfoil.adapters.client.opening import connect
from counterfoil.decisions.reconnect import ReconnectLimits
from counterfoil.errors import Indeterminate, NotApplied
from counterfoil.testing.link import open_link
from interop.plans import CutAnywhere
from interop.processes import Orders, start_kit

pytestmark = pytest.mark.anyio
QUICK = ReconnectLimits(failures=5, first_delay_ms=10, longest_delay_ms=50)
SESSIONS = 3
CALLS = 2


async def ending_of(connection: Connection, key: str) -> str:
    params = {
        "name": "order",
        "arguments": {"key": key, "steps": 4, "pause_ms": 5},
        "_meta": {"progressToken": key},
    }
    try:
        result = await connection.request("tools/call", params, deadline_s=4)
    except NotApplied:
        return "not_applied"
    except Indeterminate as doubt:
        return f"indeterminate/{doubt.evidence.why}"  # type: ignore[attr-defined]
    return "right" if result["content"][0]["text"] == f"receipt ☂ {key}" else "another's"


@pytest.mark.parametrize("behind", ["nothing", "stock-store"])
@pytest.mark.parametrize("kit", ["sdk-1", "sdk-2"])
async def test_every_cut_call_ends_and_no_effect_is_doubled(
    kit: str, behind: str, tmp_path: Path, scaled: Callable[[int, int], int]
) -> None:
    plans = scaled(6, 300)
    endings: dict[str, str] = {}

    async def run_plans(url: str, session: int) -> None:
        for seed in range(session, plans, SESSIONS):
            async with (
                connect(url, reconnect=QUICK, judge_within_s=0.3) as connection,
                anyio.create_task_group() as tasks,
            ):
                for number in range(CALLS):
                    tasks.start_soon(note, connection, f"p{seed}-c{number}")

    async def note(connection: Connection, key: str) -> None:
        endings[key] = await ending_of(connection, key)

    async def run(orders: Orders) -> int:
        async with (
            open_link(orders.server.port, plan=CutAnywhere(plans)) as link,
            anyio.create_task_group() as tasks,
        ):
            for session in range(SESSIONS):
                tasks.start_soon(run_plans, f"{link.url}/mcp", session)
        return len(link.cuts)

    with start_kit(kit, behind, tmp_path / "effects") as orders, anyio.fail_after(60 + 3 * plans):
        cuts = await run(orders)
        effects = {key: orders.count_effects(key) for key in endings}
    assert len(endings) == CALLS * plans
    assert cuts >= len(endings) // 2
    assert "another's" not in endings.values()
    assert max(effects.values()) <= 1
    assert [key for key, ending in endings.items() if ending == "right" and effects[key] != 1] == []
    assert [key for key, ending in endings.items() if ending == "not_applied" and effects[key]] == []
    if behind == "stock-store":
        assert "right" in endings.values()
