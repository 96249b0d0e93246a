"""A gateway of one process pays nothing for what several would need: nothing of it runs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import counterfoil
import pytest
from gateway_kit import Exchange, Upstream, scripted

pytestmark = pytest.mark.anyio

PACKAGE = Path(counterfoil.__file__).parent
#: What processes of one gateway know, ask and tell each other.
OF_SEVERAL = ("adapters/peers", "adapters/workers", "adapters/gateway/across")
#: Where a request is looked at for that.
ELSEWHERE = "adapters/gateway/exchanges/elsewhere.py"


class Noting:
    """A call of so many events."""

    def __init__(self, events: int) -> None:
        self.events = events

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.start()
        for number in range(self.events):
            await exchange.note(number)
        await exchange.result()
        await exchange.end()


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Count the functions of this package that run, by file."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            found[path.relative_to(PACKAGE).as_posix()] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)


async def work(events: int) -> Counter[str]:
    """Make one call of so many events, resume it from its beginning, and end the session."""
    async with scripted(Upstream(Noting(events))) as (client, _):
        with counted_calls() as found:
            async with client.call(1) as stream:
                first = (await stream.next()).id
                assert len(await stream.rest()) == events + 1
            async with client.get(first) as stream:
                assert len(await stream.rest()) == events + 1
            assert (await client.http.delete(client.url, headers=client.fields)).status_code == 200
    return found


async def test_nothing_of_what_several_processes_need_runs_in_one() -> None:
    found = await work(50)
    assert found["adapters/gateway/application.py"]
    assert not [path for path in found if path.startswith(OF_SEVERAL)]


async def test_a_request_is_looked_at_for_it_a_few_times_and_an_event_never() -> None:
    few, many = await work(2), await work(200)
    assert few[ELSEWHERE] == many[ELSEWHERE] <= 8
