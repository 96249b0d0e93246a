"""Every Python example of the README runs as pasted, and prints what its comments say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
#: `print(...)  # expected` promises a line of output.
PROMISED = re.compile(r"^\s*print\(.*\)\s+# (?P<expected>.*)$", re.MULTILINE)


def test_the_readme_has_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.strip().splitlines()[0][:40])
def test_example_runs_as_pasted(example: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(example)
    run = subprocess.run(
        [sys.executable, "-W", "error", script.name], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    expected = [match["expected"].split(":")[0].strip() for match in PROMISED.finditer(example)]
    assert run.stdout.splitlines() == expected
