"""Benchmarks: tables of bytes to an accuracy."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from helpers.fake_records import fake_record, write_fake_run

PATH = Path(__file__).parent.parent / "benchmarks" / "bytes_to_accuracy.py"


@pytest.fixture(scope="module")
def bytes_to_accuracy():
    spec = spec_from_file_location("bytes_to_accuracy", PATH)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_runs(folder: Path, **accuracies: float) -> Path:
    for method, accuracy in accuracies.items():
        metrics = {"test_accuracy": accuracy}
        write_fake_run(folder / method, method, [fake_record(n, metrics=metrics) for n in range(4)])
    return folder


def test_no_ratio_to_a_level_that_aquila_misses(bytes_to_accuracy, tmp_path, capsys):
    bytes_to_accuracy.print_both_directions([write_runs(tmp_path, aquila=0.5, laq=0.7)], 0.6)
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| aquila | 0 | not reached | | | |",
        "| laq | 0 | 3 | 6 | 3.0 | - |",
    ]


def test_no_ratios_without_a_run_of_aquila(bytes_to_accuracy, tmp_path, capsys):
    folder = write_runs(tmp_path, laq=0.7)
    bytes_to_accuracy.print_tables([folder], 0.6)
    assert capsys.readouterr().out.splitlines()[-1] == "| laq | 3 | 3072 | 1 | - | - | 70.0% |"
    with pytest.raises(SystemExit, match="must hold exactly one run of aquila, not 0"):
        bytes_to_accuracy.print_both_directions([folder], 0.6)
    with pytest.raises(SystemExit, match="has no run of aquila to take the level from"):
        bytes_to_accuracy.print_tables([folder], None)
