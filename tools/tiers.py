#!/usr/bin/env python3
"""Run the tiers of the test suite one after the other, and print what each one cost.

    build/venv/bin/python tools/tiers.py test           every tier (what `make test` and CI run)
    build/venv/bin/python tools/tiers.py lint gateway   those named, in their order

A tier has a share of CI's time.  One that goes over it says so: its counts are then to be lowered.
Exit code 1 if anything failed; the last line counts the tests.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
RESULTS = ROOT / "build" / "results"

#: Test folders and files of the tiers after `core`, with their seconds of CI's time.  A path belongs to the
#: first tier that names it or a folder above it; `core` takes whatever nobody claims.
SHARES: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("effects", 360, ("tests/effects",)),
    (
        "client",
        180,
        (
            "tests/adapters/client",
            "tests/adapters/test_client.py",
            "tests/adapters/test_connections.py",
            "tests/adapters/test_http_connections.py",
            "tests/adapters/test_http_transport.py",
            "tests/adapters/test_sdk_client.py",
            "tests/interop/test_client_conformance.py",
            "tests/interop/test_client_everything.py",
            "tests/interop/test_client_published.py",
            "tests/programs/test_tail.py",
        ),
    ),
    (
        "workers",
        180,
        (
            "tests/workers",
            "tests/adapters/peers",
            "tests/adapters/test_host_ledger.py",
            "tests/adapters/test_peers.py",
            "tests/adapters/test_workers.py",
            "tests/interop/test_shared_ledger.py",
        ),
    ),
    ("gateway", 480, ("tests/adapters", "tests/programs", "tests/interop")),
)

#: How many workers run a tier whose tests mostly wait, for clients, servers and timers.  A file stays whole
#: with one of them, as its tests share what they start.
WORKERS = {"client": 2, "gateway": 3, "workers": 2}


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other: Counts) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


@dataclass(frozen=True)
class Tier:
    name: str
    share_s: int
    commands: list[list[str]] = field(default_factory=list)


def existing(paths: tuple[str, ...]) -> list[str]:
    return [path for path in paths if (ROOT / path).exists()]


def pytest(tier: str, *paths: str, ignore: tuple[str, ...] = ()) -> list[str]:
    ignored = [f"--ignore={path}" for path in ignore]
    workers = ["-n", str(WORKERS[tier]), "--dist", "loadfile"] if tier in WORKERS else []
    return [f"{BIN}/pytest", "-q", f"--junit-xml={RESULTS}/{tier}.xml", *workers, *ignored, *paths]


def lint_tier() -> Tier:
    return Tier(
        "lint",
        300,
        [
            ["cargo", "fmt", "--all", "--check"],
            [
                "cargo",
                "clippy",
                "--quiet",
                "--locked",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ],
            [f"{BIN}/ruff", "format", "--quiet", "--check", "."],
            [f"{BIN}/ruff", "check", "--quiet", "."],
            [f"{BIN}/mypy", "--strict", "python/counterfoil", "tools"],
            [str(BIN / "python"), "-m", "mypy.stubtest", "counterfoil._core"],
        ],
    )


def core_tier() -> Tier:
    rust = ["cargo", "test", "--quiet", "--locked", "-p", "counterfoil-core"]
    claimed = tuple(path for _, _, paths in SHARES for path in paths)
    return Tier("core", 180, [rust, pytest("core", "tests", ignore=claimed)])


def demo_tier() -> Tier:
    return Tier("demo", 60, [[f"{BIN}/counterfoil", "demo"]])


def claimed_tiers() -> list[Tier]:
    """The tiers of `SHARES`; what an earlier one took is left out of those after it."""
    tiers: list[Tier] = []
    taken: tuple[str, ...] = ()
    for name, share_s, paths in SHARES:
        if existing(paths):
            tiers.append(Tier(name, share_s, [pytest(name, *existing(paths), ignore=taken)]))
        taken = (*taken, *paths)
    return tiers


def all_tiers() -> list[Tier]:
    return [lint_tier(), core_tier(), *claimed_tiers(), demo_tier()]


def run(command: list[str]) -> tuple[int, str]:
    """Run one command, pass its output on as it comes, and keep what the counts are read from."""
    # A session of its own, so that an interrupt here can end whatever the command has started.
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip
    kept = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if line.startswith("test result:"):
                kept.append(line)
        return process.wait(), "".join(kept)
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        raise


def counts_of_cargo(output: str) -> Counts:
    counts = Counts()
    for passed, failed, ignored in re.findall(r"(\d+) passed; (\d+) failed; (\d+) ignored", output):
        counts.add(Counts(int(passed), int(failed), int(ignored)))
    return counts


def counts_of_pytest(tier: str) -> Counts:
    report = RESULTS / f"{tier}.xml"
    if not report.exists():
        return Counts()
    suite = next(ElementTree.parse(report).iter("testsuite"))
    number = {key: int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")}
    failed = number["failures"] + number["errors"]
    return Counts(number["tests"] - failed - number["skipped"], failed, number["skipped"])


def run_tier(tier: Tier) -> tuple[bool, Counts]:
    print(f"== {tier.name}", flush=True)
    began = time.monotonic()
    ok, counts = True, Counts()
    for command in tier.commands:
        code, output = run(command)
        counts.add(counts_of_cargo(output))
        if code != 0:
            print(f"== {tier.name}: exit code {code} from: {' '.join(command)}", flush=True)
            ok = False
    counts.add(counts_of_pytest(tier.name))
    spent_s = time.monotonic() - began
    over = f", over its share of {tier.share_s} s: lower its counts" if spent_s > tier.share_s else ""
    print(f"== {tier.name}: {spent_s:.1f} s{over}", flush=True)
    return ok, counts


def chosen_tiers(names: list[str]) -> list[Tier]:
    """Every tier for `test`, else those named; empty if a name is none of ours."""
    tiers = all_tiers()
    if names == ["test"]:
        return tiers
    known = {tier.name for tier in tiers}
    return [tier for tier in tiers if tier.name in names] if known.issuperset(names) else []


def main(arguments: list[str]) -> int:
    tiers = chosen_tiers(arguments)
    if not tiers:
        print(__doc__, file=sys.stderr)
        return 2
    RESULTS.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("CARGO_TARGET_DIR", str(ROOT / "build" / "cargo"))
    for stale in RESULTS.glob("*.xml"):
        stale.unlink()
    began = time.monotonic()
    total, broken = Counts(), []
    for tier in tiers:
        ok, counts = run_tier(tier)
        total.add(counts)
        if not ok:
            broken.append(tier.name)
    if arguments == ["demo"]:
        return 1 if broken else 0  # What `make demo` shows is the demo's own.
    print(
        f"== all tiers: {time.monotonic() - began:.1f} s"
        + (f"; failed: {', '.join(broken)}" if broken else "")
    )
    print(f"{total.passed} passed, {max(total.failed, len(broken))} failed, {total.skipped} skipped")
    return 1 if broken else 0


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
