"""Trackers on the command line when their packages are not installed."""

import builtins
from typing import Any

import pytest

from aquila.runtime.install_hint import install_hint
from helpers.command_line import error_line


@pytest.mark.parametrize(
    ("option", "place", "package"),
    [("--tensorboard", "board", "tensorboard"), ("--mlflow", "sqlite:///runs.db", "mlflow")],
)
@pytest.mark.parametrize("command", ["run", "compare"])
def test_missing_extra_is_reported_before_training(
    command, option, place, package, tmp_path, monkeypatch
):
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.chdir(tmp_path)
    hint = install_hint(package)
    monkeypatch.setattr(builtins, "__import__", without)
    message = error_line(command, "--rounds", "2", "--out", "out", option, place)
    assert message.endswith(hint)
    assert not list(tmp_path.iterdir())
