"""The layers of the design: imports point down, never in a circle, and the lower ones stay pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "counterfoil"
#: Higher may import lower or equal, never the other way round.
RANKS = {
    "_core": 0,
    "errors": 1,
    "limits": 1,
    "native": 1,
    "model": 2,
    "decisions": 3,
    "resumption": 4,
    "protocol": 4,
    "stores": 5,
    "handlers": 5,
    "adapters": 6,
    "testing": 6,
    "programs": 7,
    "cli": 8,
    "__main__": 9,
    "__init__": 9,
}
IMPURE = {
    "anyio",
    "asyncio",
    "datetime",
    "http",
    "httpx2",
    "os",
    "pathlib",
    "random",
    "secrets",
    "select",
    "socket",
    "sqlite3",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "trio",
    "uuid",
}
PURE_LAYERS = {"errors", "limits", "native", "model", "decisions", "protocol", "resumption"}
ASYNC_LAYERS = {"stores", "handlers", "adapters", "testing", "programs"}
#: The rooms of the gateway and the modules beside them: each imports only what stands before it.
ROOMS = (
    "wire",
    "arrival",
    "settings",
    "upstream",
    "sessions",
    "streams",
    "calls",
    "resuming",
    "adoption",
    "keyed",
    "across",
    "operation",
    "exchanges",
    "answering",
    "config",
    "application",
)
GATEWAY = "adapters.gateway."
#: The two doors to Rust.
DOORS = {"native", "errors"}

MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in sorted(PACKAGE.rglob("*.py"))
}


def layer_of(module: str) -> str:
    return module.split(".")[0]


def imports_of(path: Path) -> Iterator[tuple[str, bool]]:
    """Every imported module, and whether the import runs when the module is loaded."""
    tree = ast.parse(path.read_text())
    at_load: set[ast.AST] = set()
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        at_load.add(node)
        for child in ast.iter_child_nodes(node):
            is_typing_block = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not is_typing_block:
                stack.append(child)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node in at_load
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node in at_load
            if node.module.startswith("counterfoil"):
                for alias in node.names:
                    yield f"{node.module}.{alias.name}", node in at_load


def ours(name: str) -> str | None:
    """The module of the package that an import reaches, or None."""
    if name == "counterfoil._core" or name.startswith("counterfoil._core."):
        return "_core"
    if not name.startswith("counterfoil."):
        return None
    inner = name.removeprefix("counterfoil.")
    return next((candidate for candidate in (inner, f"{inner}.__init__") if candidate in MODULES), None)


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    layer = layer_of(module)
    assert layer in RANKS, f"{module} belongs to no layer: add it to RANKS or move it"
    for name, _ in imports_of(MODULES[module]):
        target = ours(name)
        if target is not None:
            assert RANKS[layer_of(target)] <= RANKS[layer], f"{module} imports {name}, which lies above it"


def room_of(module: str) -> str:
    return module.removeprefix(GATEWAY).split(".")[0]


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith(GATEWAY) and room_of(m) != "__init__"])
def test_the_rooms_of_the_gateway_import_one_way(module: str) -> None:
    room = room_of(module)
    assert room in ROOMS, f"{module} is in no room: add the room to ROOMS, behind those that it imports"
    for name, _ in imports_of(MODULES[module]):
        target = ours(name)
        if target is not None and target.startswith(GATEWAY) and room_of(target) != "__init__":
            assert ROOMS.index(room_of(target)) <= ROOMS.index(room), f"{module} imports {name}, behind it"


@pytest.mark.parametrize("module", MODULES)
def test_rust_is_reached_through_two_doors(module: str) -> None:
    reached = any(ours(name) == "_core" for name, _ in imports_of(MODULES[module]))
    assert not reached or module in DOORS, f"{module} imports _core: import from counterfoil.native"


@pytest.mark.parametrize("module", [m for m in MODULES if layer_of(m) in PURE_LAYERS])
def test_below_the_stores_no_clock_no_randomness_no_io(module: str) -> None:
    found = {name.split(".")[0] for name, _ in imports_of(MODULES[module])} & IMPURE
    assert not found, f"{module} imports {sorted(found)}: pass the value in as an argument"


@pytest.mark.parametrize("module", [m for m in MODULES if layer_of(m) not in ASYNC_LAYERS])
def test_async_functions_live_above_the_protocol_only(module: str) -> None:
    tree = ast.parse(MODULES[module].read_text())
    assert not [node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)]


def test_no_import_cycle() -> None:
    graph = {
        module: {
            target
            for name, at_load in imports_of(path)
            if at_load and (target := ours(name)) and target != module
        }
        for module, path in MODULES.items()
    }
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module) :], module))
        if module in done or module == "_core":
            return
        for target in sorted(graph[module]):
            visit(target, (*trail, module))
        done.add(module)

    for module in graph:
        visit(module, ())
