"""The SDK's own tests of resumption, of both majors, pass with our store in the place of theirs.

They are those of the pinned source distributions, as they are; `sdk_suite/our_stores.py` puts our store in.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from interop.environments import INTEROP, find_sdk_source
from interop.processes import find_python

#: Tests of resumption, by the words in their names; the rest of those files does not meet a store.
WORDS = "resum or prim or poll or replay or reconnect or close_s or event"
SHARED = "tests/shared/test_streamable_http.py"
#: Environment, file, words, and how many tests must pass at least: fewer would mean that they were not run.
SUITES = [
    ("sdk2", "tests/interaction/transports/test_hosting_resume.py", "", 16),
    ("sdk2", SHARED, WORDS, 20),
    ("sdk1", SHARED, WORDS, 24),
]
#: These pin an empty answer to an id that the store does not know.  No id of theirs names a call, so ours is
#: the same, with a log line and a count; an id of ours that names one is answered by the in-band error.
PINNED_EMPTY = ("test_an_unknown_last_event_id_yields_an_empty_replay_stream",)


def run_suite(environment: str, file: str, words: str) -> subprocess.CompletedProcess[str]:
    source = find_sdk_source(environment)
    plugins = INTEROP / "sdk_suite"
    command = [str(find_python(environment)), "-m", "pytest", "-q", "-rA", "--noconftest", "--tb=short"]
    command += ["-c", str(plugins / "pytest.ini"), f"--rootdir={source}", "-p", "our_stores"]
    command += ["-p", "no:cacheprovider", "-W", "ignore", file, *(["-k", words] if words else [])]
    return subprocess.run(
        command, cwd=source, env=_environment(plugins), capture_output=True, text=True, check=False
    )


def _environment(plugins: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join((str(plugins), "."))}


@pytest.mark.parametrize(("environment", "file", "words", "least"), SUITES)
def test_the_sdks_own_resumption_tests_pass(environment: str, file: str, words: str, least: int) -> None:
    done = run_suite(environment, file, words)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= least
    if "hosting_resume" in file:
        for name in PINNED_EMPTY:
            assert f"PASSED {file}::{name}" in done.stdout
