"""The demo's parts: a real server that ends with its parent, and a client that loses its call."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from counterfoil.model.tokens import HandlerKind
from counterfoil.programs.demo.agent import CallRecord, Try
from counterfoil.programs.demo.columns import Column
from counterfoil.programs.demo.kills import Booked
from counterfoil.programs.demo.naive import WAYS, broken_by_naive, faults_missing
from counterfoil.programs.demo.page import write_page
from counterfoil.programs.demo.processes import start_child
from counterfoil.programs.demo.scenes import Scene
from counterfoil.programs.demo.table import lay_out, lay_out_naive
from counterfoil.testing.cuts import Cut
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.link import Answered, CutMade, open_link
from mcp import Client
from mcp.shared.exceptions import MCPError

pytestmark = [
    pytest.mark.anyio,
    # The SDK's client drops httpx2's generators half read, which trio reports when they are collected.
    pytest.mark.filterwarnings("ignore:.*Async generator:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*async_generator:pytest.PytestUnraisableExceptionWarning"),
]
OPENING = b"HTTP/1.1 200 OK\r\nStream-Continuity: v=1, verdict=resumed, why=held, next=continue\r\n\r\n"
ORDER_BODY = b'{"method":"tools/call","params":{"arguments":{"call":"<a&b>"}}}'
ORDER = {"call": "one", "steps": 5, "pause_ms": 5}

SERVER = "counterfoil.programs.demo.server"


async def ignore(_progress: float, _total: float | None, _message: str | None) -> None:
    pass


def is_running(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def cut_calls(exchange: Exchange) -> Cut | None:
    is_call = exchange.method == "POST" and b'"tools/call"' in exchange.body
    return Cut("in-frame", "rst", frames=2, position=20) if is_call else None


async def test_the_server_places_one_effect_per_call_and_streams_progress(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    notes: list[float] = []

    async def note(progress: float, _total: float | None, _message: str | None) -> None:
        notes.append(progress)

    async with (
        start_child(SERVER, ["--effects", str(effects)]) as server,
        Client(server.url, mode="legacy") as client,
    ):
        result = await client.call_tool("order", ORDER, progress_callback=note)
    assert result.content[0].text == "receipt for one"  # type: ignore[union-attr]
    assert notes == [1, 2, 3, 4, 5]
    assert effects.read_text() == "one\n"
    assert server.process.returncode == 0


async def test_without_a_store_a_cut_call_is_lost_though_its_effect_happened(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    async with (
        start_child(SERVER, ["--effects", str(effects)]) as server,
        open_link(server.port, plan=cut_calls) as link,
        Client(f"{link.url}/mcp", mode="legacy") as client,
    ):
        with pytest.raises(MCPError), anyio.fail_after(10):
            await client.call_tool("order", ORDER, progress_callback=ignore)
    assert len(link.cuts) == 1
    assert effects.read_text() == "one\n"


def test_no_child_is_left_when_the_parent_is_killed(tmp_path: Path) -> None:
    parent = (
        "import anyio, sys\n"
        "from counterfoil.programs.demo.processes import start_child\n"
        "async def main():\n"
        f"    async with start_child({SERVER!r}, ['--effects', {str(tmp_path / 'e')!r}]) as child:\n"
        "        print(child.process.pid, flush=True)\n"
        "        await anyio.sleep_forever()\n"
        "anyio.run(main)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        pid = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_page_shows_every_call_where_it_was_cut_and_needs_no_network() -> None:
    call = Exchange(1, "POST", "/mcp", {"mcp-session-id": "s"}, ORDER_BODY, b"")
    resume = Exchange(2, "GET", "/mcp", {"mcp-session-id": "s", "last-event-id": "<id>"}, b"", b"")
    cut = CutMade(call, Cut("in-frame", "rst", frames=1, position=9), 120)
    tried = Try("right", "receipt for <a&b>", (1, 2), 0.3)
    column = Column(
        "through <us>",
        (CallRecord("<a&b>", (tried,)),),
        {"<a&b>": 1},
        (cut,),
        (call, resume),
        (Answered(1, 10.0, 10.1), Answered(2, 10.2, 10.3, OPENING, 4)),
        0.4,
    )
    scene = Scene("a <scene>", "a promise", True, "error", ({"verdict": "gap", "why": "trimmed", "row": 10},))
    page = write_page([column, column], [scene], [], seconds=1.0)
    assert page.count("<rect") == 4
    assert page.count('var(--cut)"') == 2
    assert "call, cut in-frame by RST after 120 bytes" in page
    assert "gap · trimmed (row 10)" in page
    assert page.count("own answer, effect ×1, 200 resumed · held, 4 events") == 2
    assert page.count("resume, whole: 200 resumed · held, 4 events") == 2
    assert "&lt;a&amp;b&gt;" in page
    assert "prefers-color-scheme: dark" in page
    assert not {"<a&b>", "<scene>", "<us>", "<script", "http://", "https://", "@import", "url("} & _found(
        page
    )


def _found(page: str) -> set[str]:
    words = ("<a&b>", "<scene>", "<us>", "<script", "http://", "https://", "@import", "url(")
    return {word for word in words if word in page}


def test_the_table_counts_what_the_columns_hold() -> None:
    twice = CallRecord("a", (Try("error", "", (), 0.1), Try("right", "", (1,), 0.2)))
    other = CallRecord("b", (Try("other", "", (1,), 0.2),))
    column = Column("straight", (twice, other), {"a": 2, "b": 1}, (), (), (), 3.0)
    table = lay_out([column])
    assert re.search(r"answered right after calling again +1$", table, re.MULTILINE)
    assert re.search(r"answered with another call's answer +1$", table, re.MULTILINE)
    assert re.search(r"effect happened twice +1$", table, re.MULTILINE)


@pytest.mark.parametrize(
    ("kind", "times", "listed", "wrong"),
    [
        ("transactional", {"a": 1, "b": 1}, (), 0),
        ("transactional", {"a": 1, "b": 2}, (), 1),
        ("idempotent", {"a": 1}, ("b",), 1),
        ("idempotent", {"a": 1, "b": 1}, ("b",), 1),
        ("at_most_once", {"a": 1}, ("b",), 0),
        ("at_most_once", {"a": 1, "b": 1}, ("b",), 0),
        ("at_most_once", {"a": 1}, (), 1),
        ("at_most_once", {"a": 2}, ("a", "b"), 1),
    ],
)
def test_a_receipt_is_wrong_where_its_kind_promises_another_count(
    kind: str, times: dict[str, int], listed: tuple[str, ...], wrong: int
) -> None:
    booked = Booked(HandlerKind(kind), ("a", "b"), times, frozenset(listed))
    assert booked.wrong == wrong


def test_an_interrupt_ends_the_demo_with_130_and_leaves_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "counterfoil", "demo", "--page", str(tmp_path / "page.html")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        deadline = time.monotonic() + 20
        while not (children := _children_of(process.pid)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(1)  # in the middle of something
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert "Traceback" not in process.stderr.read()
    while any(is_running(child) for child in children):
        assert time.monotonic() < deadline + 20
        time.sleep(0.05)


def _children_of(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def test_what_naive_agents_are_to_show_is_checked_both_ways() -> None:
    def column(way: str, effects: int) -> Column:
        record = CallRecord("a", (Try("right", "", (1,), 0.2),))
        return Column(way, (record,), {"a": effects}, (), (), (), 1.0)

    as_promised = [column(way.name, 1 if way.is_once else 2) for way in WAYS]
    assert broken_by_naive(as_promised) == faults_missing(as_promised) == []
    otherwise = [column(way.name, 2 if way.is_once else 1) for way in WAYS]
    assert len(broken_by_naive(otherwise)) == sum(way.is_once for way in WAYS) == 2
    assert len(faults_missing(otherwise)) == 4
    assert "2026-07-28, max_revision" in lay_out_naive(as_promised)
    assert "Agents that make their call again" in write_page([], [], [], seconds=1.0, naive=as_promised)
