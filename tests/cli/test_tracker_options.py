"""Trackers on the command line, where their programs are not installed."""

import builtins
from typing import Any

import pytest

from helpers.command_line import error_line


@pytest.mark.parametrize(
    ("option", "place", "package"),
    [("--tensorboard", "board", "tensorboard"), ("--mlflow", "sqlite:///runs.db", "mlflow")],
)
@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_missing_extra_is_named_before_anything_is_trained(
    command, option, place, package, tmp_path, monkeypatch
):
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(builtins, "__import__", without)
    said = error_line(command, "--rounds", "2", "--out", "out", option, place)
    assert f"pip install 'aquila-fl[{package}]'" in said
    assert not list(tmp_path.iterdir())
