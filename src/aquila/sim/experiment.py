"""Experiments as data: a TOML file with a setting and the parameters of methods in it."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aquila.core.parameter import spelling_hint
from aquila.sim.setting import Setting

TOP_LEVEL_KEYS = ("setting", "methods", "compare")


@dataclass(frozen=True)
class Experiment:
    """A setting, what its methods are given beyond their defaults, and which to compare."""

    setting: Setting = field(default_factory=Setting)
    methods: dict[str, dict[str, object]] = field(default_factory=dict)
    compare: tuple[str, ...] = ()


def read_experiment(path: Path, overrides: dict[str, object]) -> Experiment:
    """Read a file; overrides replace what it says of the setting. ValueError names what is off."""
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from error
    for key in content:
        if key not in TOP_LEVEL_KEYS:
            raise ValueError(f"{path} has no use for {key!r}{spelling_hint(key, TOP_LEVEL_KEYS)}")
    methods, compare = content.get("methods", {}), content.get("compare", [])
    if not isinstance(compare, list) or not all(isinstance(spec, str) for spec in compare):
        raise ValueError(f"{path}: compare must be a list of methods, not {compare!r}")
    for table in (content.get("setting", {}), methods, *_values(methods)):
        if not isinstance(table, dict):
            raise ValueError(f"{path}: setting and methods must be tables, not {table!r}")
    try:
        setting = Setting.of({**content.get("setting", {}), **overrides})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return Experiment(setting, methods, tuple(compare))


def _values(table: object) -> list[object]:
    return list(table.values()) if isinstance(table, dict) else []
