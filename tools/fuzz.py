#!/usr/bin/env python3
"""Run every fuzz target for a bounded time.

    python3 tools/fuzz.py --seconds 60 [--target sse_diff ...] [--sanitizer address]

New inputs grow under build/fuzz/corpus; the committed corpus is only read.  A crash is reported with the path
of its input and exit code 1: copy that input into rust/fuzz/corpus/TARGET, where a plain test replays it.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUZZ = ROOT / "rust" / "fuzz"
BUILD = ROOT / "build"
TARGETS = sorted(path.stem for path in (FUZZ / "fuzz_targets").glob("*.rs"))


class Stopped(Exception):
    """Ctrl-C: the child and all of its children are gone."""


def run(command: list[str], environment: dict[str, str], log: Path) -> int:
    """Run in a process group of its own, so that nothing is left behind when we are interrupted."""
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return child.wait()
        except KeyboardInterrupt:
            os.killpg(child.pid, signal.SIGTERM)
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            raise Stopped from None


def install_cargo_fuzz(environment: dict[str, str], logs: Path) -> Path:
    tool = BUILD / "tools" / "bin" / "cargo-fuzz"
    if not tool.exists():
        print("fuzz: installing cargo-fuzz under build/tools (once)", flush=True)
        log = logs / "install.log"
        command = ["cargo", "install", "cargo-fuzz", "--locked", "--root", str(BUILD / "tools")]
        if run(command, environment, log) != 0:
            print(f"fuzz: could not install cargo-fuzz: see {log}", file=sys.stderr)
            raise SystemExit(2)
    return tool


def last_count(text: str) -> tuple[str, str]:
    """Inputs tried and coverage reached, from the last line in which libFuzzer tells them."""
    found = re.findall(r"^#(\d+)\s.*?cov: (\d+)", text, re.MULTILINE)
    return found[-1] if found else ("?", "?")


def fuzz_target(tool: Path, target: str, seconds: int, sanitizer: str, environment: dict[str, str]) -> bool:
    grown = BUILD / "fuzz" / "corpus" / target
    artifacts = BUILD / "fuzz" / "artifacts" / target
    for folder in (grown, artifacts):
        folder.mkdir(parents=True, exist_ok=True)
    log = BUILD / "fuzz" / f"{target}.log"
    prefix = ["--fuzz-dir", str(FUZZ), "--sanitizer", sanitizer]
    built = run([str(tool), "build", *prefix, target], environment, log)
    if built != 0:
        print(f"{target:14} does not build: see {log}", file=sys.stderr)
        raise SystemExit(2)
    options = [f"-max_total_time={seconds}", "-timeout=10", "-max_len=4096", f"-artifact_prefix={artifacts}/"]
    dictionary = FUZZ / f"{target.split('_')[0]}.dict"
    if dictionary.exists():
        options.append(f"-dict={dictionary}")
    seeds = FUZZ / "corpus" / target
    corpora = [str(grown), *([str(seeds)] if seeds.is_dir() else [])]
    began = time.monotonic()
    code = run([str(tool), "run", *prefix, target, *corpora, "--", *options], environment, log)
    tried, coverage = last_count(log.read_text(errors="replace"))
    verdict = (
        "ok"
        if code == 0
        else f"FAILED, inputs in {artifacts.relative_to(ROOT)}, log in {log.relative_to(ROOT)}"
    )
    print(
        f"{target:14} {time.monotonic() - began:6.0f} s {tried:>10} inputs  cov {coverage:>5}  {verdict}",
        flush=True,
    )
    return code == 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: 60)")
    parser.add_argument("--target", action="append", choices=TARGETS, help="only this one; may be repeated")
    parser.add_argument("--sanitizer", choices=("none", "address"), default="none")
    arguments = parser.parse_args()
    logs = BUILD / "fuzz"
    logs.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"CARGO_TARGET_DIR": str(BUILD / "cargo-fuzz")}
    if arguments.sanitizer != "none":
        # Sanitizers are nightly options; the stable compiler takes them when asked like this.
        environment["RUSTC_BOOTSTRAP"] = "1"
    try:
        tool = install_cargo_fuzz(environment, logs)
        results = [
            fuzz_target(tool, target, arguments.seconds, arguments.sanitizer, environment)
            for target in arguments.target or TARGETS
        ]
    except Stopped:
        print("fuzz: interrupted", file=sys.stderr)
        return 130
    return 0 if all(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
