"""Our client killed with -9 at seeded places, on both families of revisions: each call's effect happens once.

Behind our gateway with a ledger exactly once, in front of any other server at most once, and what is not
known is listed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from counterfoil.native import KeyRing
from counterfoil.programs.demo.kills import Killed, KillPlan, run_kills
from counterfoil.programs.demo.processes import start_child
from counterfoil.programs.demo.scenes import GATEWAY, SERVER, Stage
from counterfoil.programs.keys import write_key_file
from counterfoil.protocol.revisions import LAST_WITH_SESSIONS, WITHOUT_SESSIONS

pytestmark = pytest.mark.anyio
REVISIONS = (LAST_WITH_SESSIONS.revision, WITHOUT_SESSIONS.revision)


@asynccontextmanager
async def server_of(kind: str, folder: Path) -> AsyncIterator[str]:
    stage = Stage(folder)
    write_key_file(stage.keys, KeyRing.from_secret(bytes(32), made_s=1), replace=False)
    store = "example" if kind == "example-store" else "none"
    arguments = ["--effects", str(folder / "effects"), "--store", store]
    async with start_child(SERVER, arguments) as server:
        if kind != "gateway":
            yield server.url
            return
        async with start_child(GATEWAY, stage.keyed_gateway(server.port, "gateway")) as gateway:
            yield gateway.url


async def killed(kind: str, revision: str, folder: Path, plan: KillPlan) -> Killed:
    with anyio.fail_after(60 + 10 * plan.kills):
        async with server_of(kind, folder) as url:
            return await run_kills(url, revision, folder / "effects", folder / "own", plan, lambda _: None)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_behind_our_gateway_every_killed_call_ends_right_with_one_effect(
    revision: str, tmp_path: Path, anyio_backend: str, scaled: Callable[[int, int], int]
) -> None:
    kills = scaled(2, 40)
    plan = KillPlan(seed=11, calls=3 * kills, kills=kills, backend=anyio_backend)
    ended = await killed("gateway", revision, tmp_path, plan)
    assert ended.kills == kills
    assert ended.effects == dict.fromkeys(ended.calls, 1)
    assert ended.answered == set(ended.calls)
    assert ended.doubtful_calls == set()
    assert [booked.wrong for booked in ended.booked] == [0, 0, 0]


@pytest.mark.parametrize(
    ("kind", "revision"), [("stock", REVISIONS[0]), ("stock", REVISIONS[1]), ("example-store", REVISIONS[0])]
)
async def test_in_front_of_any_other_server_no_effect_is_doubled_and_every_doubt_is_listed(
    kind: str, revision: str, tmp_path: Path, anyio_backend: str, scaled: Callable[[int, int], int]
) -> None:
    kills = scaled(1, 30)
    plan = KillPlan(seed=12, calls=3 + kills, kills=kills, backend=anyio_backend)
    ended = await killed(kind, revision, tmp_path, plan)
    assert ended.kills == kills
    assert max(ended.effects.values()) == 1
    assert ended.answered <= set(ended.effects)
    # Whatever may have run and got no answer is in the ledger's list; whatever is not, was answered.
    assert set(ended.calls) - ended.answered <= ended.doubtful_calls
    assert not ended.answered & ended.doubtful_calls
