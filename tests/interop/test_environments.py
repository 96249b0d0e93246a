"""What is built for the SDK, tested with each of its majors and with the FastMCP of either.

The tests are those of this suite; here they run in the environments that hold the other packages.
"""

from __future__ import annotations

import os
import subprocess

import pytest
from interop.environments import BUILD, ROOT

#: The environment, and what of the tests is not run anywhere else.
ENVIRONMENTS = {"sdk1": "test", "sdk2": "fastmcp"}
TESTS = ("tests/adapters/test_mcp_event_store.py", "tests/adapters/test_resumable_app.py")


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_adapters_pass_their_tests_in(name: str) -> None:
    python = BUILD / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"build/{name} is missing: run `make sdks`")
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", ENVIRONMENTS[name], *TESTS]
    done = subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def _environment() -> dict[str, str]:
    # The packages are those of the environment, the wheel among them.
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
