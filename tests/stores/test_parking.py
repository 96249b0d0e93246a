"""A task's place to wait: woken from any thread, cancelled without harm, and nothing is left of it."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path

import anyio
import pytest
import trio
from counterfoil.stores.parking import Place, take_place


def wake_from_thread(place: Place) -> None:
    """Wake as a store's thread does."""

    def wake() -> None:
        if place.soon is None:
            place.wake()
        else:
            place.soon(place.wake)

    thread = threading.Thread(target=wake)
    thread.start()
    thread.join()


@pytest.mark.anyio
async def test_whoever_waits_alone_or_among_others_is_woken_from_another_thread() -> None:
    woken: list[int] = []

    async def wait(number: int, place: Place) -> None:
        await place.wait()
        place.leave()
        woken.append(number)

    with anyio.fail_after(10):
        for _ in range(2):
            places = [take_place() for _ in range(3)]
            for number in (2, 0, 1):
                async with anyio.create_task_group() as group:
                    group.start_soon(wait, number, places[number])
                    await anyio.wait_all_tasks_blocked()
                    wake_from_thread(places[number])
    assert woken == [2, 0, 1] * 2


@pytest.mark.anyio
async def test_a_place_woken_before_the_wait_does_not_wait() -> None:
    place = take_place()
    wake_from_thread(place)
    with anyio.fail_after(10):
        await place.wait()
    place.leave()


@pytest.mark.anyio
async def test_a_call_that_comes_after_a_cancelled_wait_wakes_nobody_else() -> None:
    """The next one in line hears the ring, and waits on for its own."""
    first = take_place()
    with anyio.move_on_after(0.01):
        await first.wait()
    first.leave()
    second = take_place()
    woken = anyio.Event()

    async def wait() -> None:
        await second.wait()
        second.leave()
        woken.set()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            wake_from_thread(first)
            await anyio.wait_all_tasks_blocked()
            await anyio.sleep(0.01)
            assert not woken.is_set()
            wake_from_thread(second)
    assert woken.is_set()


@pytest.mark.skipif(
    not hasattr(os, "eventfd") or not Path("/proc/self/fd").is_dir(),
    reason="this system has no such descriptor",
)
def test_only_who_waits_alone_in_trio_has_a_descriptor_and_a_thread_keeps_one_at_most() -> None:
    kept: list[Place] = []

    async def main() -> None:
        alone, other = take_place(), take_place()
        assert alone.soon is None
        assert other.soon is not None
        other.leave()
        alone.leave()
        again = take_place()
        assert again.soon is None
        again.leave()
        kept.append(again)

    def run_often() -> None:
        for _ in range(20):
            trio.run(main)
            assert open_descriptors() <= before + len(kept)
            # The run is over; the number is not somebody else's while one may still ring.
            wake_from_thread(kept[-1])
            del kept[:-1]

    before = open_descriptors()
    thread = threading.Thread(target=run_often)
    thread.start()
    thread.join()
    kept.clear()
    assert open_descriptors() == before


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_where_no_descriptor_is_left_a_task_waits_all_the_same() -> None:
    async def main() -> None:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            place = take_place()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert place.soon is not None

        async def wait() -> None:
            await place.wait()

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            wake_from_thread(place)
        place.leave()

    trio.run(main)
