"""Every Python example of the README runs as pasted, and prints what its comments say."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
#: `print(...)  # expected` promises a line of output.
PROMISED = re.compile(r"^\s*print\(.*\)  # (?P<expected>.*)$", re.MULTILINE)
PORT = "8000"


def example(start: str) -> str:
    return next(text for text in EXAMPLES if text.startswith(start))


def run_script(text: str, folder: Path) -> list[str]:
    script = folder / "example.py"
    script.write_text(text)
    run = subprocess.run(
        [sys.executable, script.name], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def promised_by(text: str) -> list[str]:
    return [match["expected"].split(":")[0].strip() for match in PROMISED.finditer(text)]


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The server of the README, run as its first line says; gives the port."""
    command = Path(sys.executable).parent / "counterfoil"
    subprocess.run(
        [str(command), "keys", "new", "counterfoil.keys"], cwd=folder, check=True, capture_output=True
    )
    (folder / "server.py").write_text(example("# server.py"))
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "uvicorn", "server:app", "--port", port], cwd=folder)
    try:
        deadline = time.monotonic() + 30
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(port))) == 0:
                    break
            assert process.poll() is None, "the server has ended"
            assert time.monotonic() < deadline, "the server does not listen"
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(timeout=20)


def test_the_core_runs_as_pasted(tmp_path: Path) -> None:
    text = example("import counterfoil")
    assert run_script(text, tmp_path) == promised_by(text) != []


def test_the_client_gets_its_answer_from_the_server_and_again_from_the_ledger(tmp_path: Path) -> None:
    text = example("# client.py")
    assert len(EXAMPLES) == 3, "an example was added: run it here"
    with served(tmp_path) as port:
        assert f":{PORT}/" in text
        here = text.replace(f":{PORT}/", f":{port}/")
        assert run_script(here, tmp_path) == ["ordered A1"]
        assert run_script(here, tmp_path) == ["ordered A1"]
