"""The examples train, and the outer loop continues from its files."""

import importlib.util
from pathlib import Path

import torch._dynamo  # noqa: F401  optimizers import it; faster here than once per rank

from helpers.ranks import run_ranks

FOLDER = Path(__file__).parents[2] / "examples" / "distributed"


def load_example(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_outer_loop_learns_and_continues(tmp_path):
    train, folder = load_example("outer_loop").train, tmp_path / "states"
    whole = run_ranks(tmp_path, train, 120, "aquila_dither", 20, None)
    first = run_ranks(tmp_path, train, 80, "aquila_dither", 20, folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        f"rank{rank}-{number}.pt" for rank in range(2) for number in (3, 4)
    ]
    (folder / "rank1-4.pt").unlink()  # rank 1 was killed before it saved
    resumed = run_ranks(tmp_path, train, 120, "aquila_dither", 20, folder)
    assert resumed == whole
    assert first[0][0] > 0.5
    assert whole[0][0] == whole[1][0]


def test_ddp_hook_learns(tmp_path):
    train = load_example("ddp_hook").train
    results = run_ranks(tmp_path, train, 60, "qsgd:bits=4,norm=l2")
    assert results[0][0] == results[1][0] > 0.8
