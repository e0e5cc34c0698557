import builtins
import re

import pytest
import torch

import aquila
from aquila.report.labelled_run import LabelledRun
from aquila.report.loss_plot import plot_loss_against_uplink
from aquila.runtime.install_hint import install_hint


def results() -> list[LabelledRun]:
    device = [lambda theta: (float(theta @ theta) + 1, 2 * theta)]
    method = aquila.create("fedsgd")
    run = aquila.simulate(method, torch.ones(4), device, rounds=3)
    return [LabelledRun(f"method {n}", run.records) for n in range(12)]


def test_figure_is_written_as_png(tmp_path):
    path = plot_loss_against_uplink(results(), tmp_path / "new" / "figure.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_run_without_rounds_does_not_fail(tmp_path):
    plot_loss_against_uplink(
        [LabelledRun("empty", [], stopped=True), *results()], tmp_path / "f.png"
    )


def test_missing_matplotlib_names_the_extra(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=re.escape(install_hint("report"))):
        plot_loss_against_uplink([], tmp_path / "figure.png")
