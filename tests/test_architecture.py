"""The house as it was drawn: imports go downward only, heavy ones stay where they belong, nothing unsafe is loaded."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import jade

ROOT = Path(jade.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

FLOORS = (
    ("config", "errors", "extras", "outside", "received", "types"),
    ("backbone", "retrieval", "corpus", "reward.metrics"),
    ("team",),
    ("engine",),
    ("reward.outcome", "reward.selection"),
    ("learn",),
    ("evaluate", "serve", "cluster", "screen"),
    ("api",),
    ("cli",),
    ("__main__",),
)
"""From the ground up. A room may use those on lower floors; rooms of one floor do not know each other."""
GROUND = FLOORS[0]

TORCH_ROOMS = ("backbone.local", "retrieval.dense", "retrieval.encoder", "learn.", "cluster.")
HEAVY = ("torch", "transformers", "numpy")
TORCH = ("torch", "transformers", "peft", "sentence_transformers", "faiss", "safetensors")
PICKLES = ("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal")


@dataclass(frozen=True)
class Import:
    """One import statement: who imports what, where, and whether it waits until a function is called."""

    importer: str
    imported: str
    line: int
    lazy: bool

    def __str__(self) -> str:
        return f"jade.{self.importer}:{self.line} imports {self.imported}"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports_of(path: Path) -> Iterator[Import]:
    yield from _imports(tree_of(path), module_name(path), lazy=False)


def _imports(node: ast.AST, importer: str, lazy: bool) -> Iterator[Import]:
    """Every import below a node. What only a type checker reads is none."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (Import(importer, alias.name, child.lineno, lazy) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"jade.{importer}:{child.lineno}: imports are absolute"
            module = child.module or ""
            yield from (Import(importer, f"{module}.{alias.name}", child.lineno, lazy) for alias in child.names)
        else:
            inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from _imports(child, importer, lazy or inside)


ALL_IMPORTS = [each for path in FILES for each in imports_of(path)]


def within(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def floor_of(module: str) -> tuple[int, str] | None:
    """A module's floor and room; None for the package itself."""
    found = [(floor, room) for floor, rooms in enumerate(FLOORS) for room in rooms if within(module, room)]
    return found[0] if found else None


def is_allowed(importer: str, imported: str) -> bool:
    upper, lower = floor_of(importer), floor_of(imported)
    if upper is None or lower is None:
        return importer == "" or imported in ("", "__version__")
    return lower[0] < upper[0] or lower[1] == upper[1] or (lower[1] in GROUND and upper[1] in GROUND)


def test_the_floors_name_every_room_there_is() -> None:
    homeless = [module_name(path) for path in FILES if path.name != "__init__.py" and not floor_of(module_name(path))]
    assert homeless == []


def test_imports_go_downward_only() -> None:
    ours = [each for each in ALL_IMPORTS if within(each.imported, "jade")]
    assert len(ours) > 100
    upward = [
        str(each) for each in ours if not is_allowed(each.importer, each.imported.removeprefix("jade").strip("."))
    ]
    assert upward == []


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("team.crew", "engine.solve"),
        ("backbone.local", "retrieval.base"),
        ("evaluate.run", "serve.app"),
        ("reward.metrics", "reward.outcome"),
        ("types", "team.team"),
    ],
)
def test_an_import_upward_or_sideways_would_be_noticed(importer: str, imported: str) -> None:
    assert not is_allowed(importer, imported)


def test_the_engine_sees_protocols_and_never_implementations() -> None:
    seen = {each.imported for each in ALL_IMPORTS if within(each.importer, "engine")}
    rooms = {name for name in seen if within(name, "jade.backbone") or within(name, "jade.retrieval")}
    assert all(name.startswith(("jade.backbone.base.", "jade.retrieval.base.")) for name in rooms)


def test_torch_is_imported_only_where_models_run() -> None:
    strays = [
        str(each)
        for each in ALL_IMPORTS
        if each.imported.split(".")[0] in TORCH and not f"{each.importer}.".startswith(TORCH_ROOMS)
    ]
    assert strays == []


def test_where_models_run_is_reached_lazily_from_outside() -> None:
    eager = [
        str(each)
        for each in ALL_IMPORTS
        if not each.lazy
        and each.imported.removeprefix("jade.").startswith(tuple(room.rstrip(".") for room in TORCH_ROOMS[:3]))
        and floor_of(each.importer) != floor_of(each.imported.removeprefix("jade."))
        and not f"{each.importer}.".startswith(TORCH_ROOMS)
    ]
    assert eager == []


def test_the_commands_are_listed_without_anything_heavy() -> None:
    pytest.importorskip("jade.cli.main", reason="the commands are not there yet")
    code = "import sys, jade.cli.main; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "typer" in loaded
    assert not set(HEAVY) & set(loaded)


def test_a_team_at_work_needs_nothing_heavy() -> None:
    code = "import sys, jade.engine.rollout, jade.engine.replay, jade.team.crew; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not set(HEAVY) & set(loaded)


def test_nothing_loads_pickle() -> None:
    assert [str(each) for each in ALL_IMPORTS if each.imported.split(".")[0] in PICKLES] == []
    assert [found for path in FILES for found in calls_to_load(path)] == []


def calls_to_load(path: Path) -> Iterator[str]:
    """Calls that would unpickle: `torch.load`, `read_pickle`, `allow_pickle=True`."""
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        unsafe = name == "torch.load" or name.endswith("read_pickle") or has_true(node, "allow_pickle")
        if unsafe:
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {name}"


def has_true(call: ast.Call, keyword: str) -> bool:
    """Whether a call switches a keyword on: gives it anything but a literal False."""
    given = [each.value for each in call.keywords if each.arg == keyword]
    return any(not (isinstance(value, ast.Constant) and value.value is False) for value in given)


def test_no_code_that_came_with_a_model_is_run() -> None:
    trusting = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and has_true(node, "trust_remote_code")
    ]
    assert trusting == []


@pytest.mark.parametrize("code", ["f(trust_remote_code=True)", "f(trust_remote_code=flag)"])
def test_switching_remote_code_on_would_be_noticed(code: str) -> None:
    (statement,) = ast.parse(code).body
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    assert has_true(statement.value, "trust_remote_code")


def test_nothing_is_evaluated_or_executed_from_text() -> None:
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.func.id}"
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("eval", "exec", "compile")
    ]
    assert calls == []
