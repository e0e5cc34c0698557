"""Experiments as data: a TOML file with a setting and the parameters of methods in it."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aquila.core.parameter import nearest
from aquila.sim.setting import Setting

TABLES = ("setting", "methods")


@dataclass(frozen=True)
class Experiment:
    """A setting, and what its methods are given there beyond their defaults."""

    setting: Setting = field(default_factory=Setting)
    methods: dict[str, dict[str, object]] = field(default_factory=dict)


def read_experiment(path: Path, overrides: dict[str, object]) -> Experiment:
    """Read a file; overrides replace what it says of the setting. ValueError names what is off."""
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from error
    for table in content:
        if table not in TABLES:
            raise ValueError(f"{path} has no use for [{table}]{nearest(table, TABLES)}")
    try:
        setting = Setting.of({**content.get("setting", {}), **overrides})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return Experiment(setting, content.get("methods", {}))
