"""The arrows of docs/architecture.md, asserted: who may import whom."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "aquila"

ALLOWED = {
    "version": set(),
    "native": set(),
    "core": {"native"},
    "theory": {"core"},
    "methods": {"core"},
    "runtime": {"core"},
    "tasks": {"core"},
    "sim": {"core", "runtime", "tasks"},
    "report": {"core", "runtime", "sim"},
    "deploy": set(),
    "flower": {"core", "runtime", "sim"},
    "cli": {"core", "deploy", "methods", "runtime", "sim", "tasks", "report", "theory", "version"},
    "__init__": {"core", "methods", "runtime", "sim", "version"},
}

FILES = sorted(SOURCE.rglob("*.py"))


def layer(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names.add(node.module)
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_follow_the_arrows(path):
    own = layer(path)
    ours = {name.split(".")[1] for name in imported(path) if name.startswith("aquila.")}
    assert ours <= ALLOWED[own] | {own}


def test_only_tasks_and_sim_know_modules():
    knowing = {layer(path) for path in FILES if "nn.Module" in path.read_text()}
    assert knowing <= {"tasks", "sim"}


def test_runtime_names_no_method():
    methods = {path.stem for path in (SOURCE / "methods").glob("*.py")} - {"__init__", "aquila"}
    for path in (SOURCE / "runtime").glob("*.py"):
        words = {
            node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)
        }
        assert not words & methods


def test_only_the_reader_of_old_files_knows_pickles():
    assert [path.name for path in FILES if "pickle" in imported(path)] == ["safe_pickle.py"]
