"""Rules about layers: imports as in docs/architecture.md, names of methods, randomness."""

import ast
import re
from pathlib import Path

import pytest

from helpers.method_names import find_method_names

SOURCE = Path(__file__).parent.parent / "src" / "aquila"

ALLOWED = {
    "version": set(),
    "native": set(),
    "core": {"native"},
    "theory": {"core"},
    "methods": {"core"},
    "runtime": {"core"},
    "tasks": {"core"},
    "training": {"core", "runtime", "tasks"},
    "sim": {"core", "runtime", "tasks", "training", "version"},
    "report": {"core", "runtime", "sim", "training"},
    "advice": {"core", "methods", "report", "runtime", "sim", "tasks", "training"},
    "deploy": set(),
    "flower": {"core", "deploy", "runtime", "sim"},
    "distributed": {"core", "methods", "native", "runtime"},
    "cli": {
        "advice",
        "core",
        "deploy",
        "methods",
        "runtime",
        "sim",
        "tasks",
        "training",
        "report",
        "theory",
        "version",
    },
    "__main__": {"cli"},
    "__init__": {"advice", "core", "methods", "report", "runtime", "sim", "training", "version"},
}

RANDOM_CALL = re.compile(r"torch\.(rand\w*|bernoulli|multinomial|normal)|(np\.|numpy\.)?random\..*")

FILES = sorted(SOURCE.rglob("*.py"))


def layer(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def relative_name(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names.add(node.module)
    return names


@pytest.mark.parametrize("path", FILES, ids=relative_name)
def test_imports_follow_the_layers(path):
    own = layer(path)
    ours = {name.split(".")[1] for name in imported(path) if name.startswith("aquila.")}
    assert ours <= ALLOWED[own] | {own}


def test_only_four_layers_use_modules():
    using = {layer(path) for path in FILES if "nn.Module" in path.read_text()}
    assert using <= {"tasks", "training", "sim", "distributed"}


def test_only_one_layer_uses_torch_distributed():
    using = {layer(p) for p in FILES if any("torch.distributed" in n for n in imported(p))}
    assert using == {"distributed"}


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if layer(path) in ("core", "runtime", "training", "sim", "flower")],
    ids=relative_name,
)
def test_file_names_no_method(path):
    assert find_method_names(path.read_text()) == set()


@pytest.mark.parametrize(
    "path", [path for path in FILES if layer(path) == "distributed"], ids=relative_name
)
def test_distributed_uses_the_catalogue_only(path):
    assert find_method_names(path.read_text()) <= {"METHODS", "create"}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('method.name == "laq"', {"laq"}),
        ('method.name == "aquila"', {"aquila"}),
        ('method.name in ("marina", "aquila")', {"marina", "aquila"}),
        ('match name:\n    case "aquila": pass', {"aquila"}),
        ('METHODS["aquila"]', {"aquila"}),
        ('slow = {"lena_tables", "qsgd:bits=2"}', {"lena_tables", "qsgd"}),
        ("methods.laq", {"laq"}),
        ("marina(alpha=0.1)", {"marina"}),
        ("def run(ef21): pass", {"ef21"}),
        ("from aquila.methods import qsgd", {"qsgd"}),
        ("from aquila.methods.parts import memory", {"memory"}),
        ("import aquila.methods.aquila", {"aquila"}),
        ("from aquila import fedsgd", {"fedsgd"}),
    ],
)
def test_guard_finds_names_of_methods(source, names):
    assert find_method_names(source) == names


@pytest.mark.parametrize(
    "source",
    [
        "mean = sum(values) / len(values)",
        "memory = schedule(mean)",
        "kept = vector.abs().topk(3)",
        'logger = getLogger("aquila")',
        'kind = "train.aquila"',
        "import aquila.core.method",
        "from aquila.core.fleet import Fleet",
        '"""Used by laq and marina."""',
        "relaqs = lagging",
    ],
)
def test_guard_accepts_other_names(source):
    assert find_method_names(source) == set()


def test_only_the_reader_of_old_files_uses_pickle():
    assert [path.name for path in FILES if "pickle" in imported(path)] == ["safe_pickle.py"]


def random_calls(source: str) -> set[str]:
    """Return the calls that draw random numbers without a key's generator."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return {
        ast.unparse(call.func)
        for call in calls
        if RANDOM_CALL.fullmatch(ast.unparse(call.func))
        and "generator" not in {word.arg for word in call.keywords}
    }


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in FILES
        if layer(path) in ("core", "methods", "runtime", "flower", "distributed")
    ],
    ids=relative_name,
)
def test_randomness_comes_from_keys(path):
    if relative_name(path) != "core/random.py":
        assert random_calls(path.read_text()) == set()


def test_guard_finds_random_calls():
    assert random_calls("torch.rand(3); np.random.default_rng(0); random.random()") == {
        "torch.rand",
        "np.random.default_rng",
        "random.random",
    }
    assert random_calls("torch.rand(3, generator=key.torch()); key.uniform(v)") == set()
