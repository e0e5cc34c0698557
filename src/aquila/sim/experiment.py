"""Experiments as TOML files: a setting, method parameters and the methods to compare."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aquila.core.parameter import spelling_hint
from aquila.sim.setting import Setting, setting_parameters

TOP_LEVEL_KEYS = ("setting", "methods", "compare")


@dataclass(frozen=True)
class Experiment:
    """A setting, parameters of methods that differ from the defaults, and methods to compare."""

    setting: Setting = field(default_factory=Setting)
    methods: dict[str, dict[str, object]] = field(default_factory=dict)
    compare: tuple[str, ...] = ()


def read_experiment(
    path: Path, overrides: dict[str, object], tables: Mapping[str, str] | None = None
) -> Experiment:
    """Read an experiment file; overrides replace fields of its setting.

    ValueError names the wrong entry and what is allowed. `tables` names the table that a key
    belongs in, for keys that a user may have put elsewhere.
    """
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from error
    _check_places(path, content, tables or {})
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


def _check_places(path: Path, content: dict[str, Any], tables: Mapping[str, str]) -> None:
    """Raise ValueError for a key in the wrong table."""
    settings = setting_parameters()
    for key in content:
        if key in TOP_LEVEL_KEYS:
            continue
        if key in settings or key in tables:
            table = "[setting]" if key in settings else tables[key]
            raise ValueError(f"{path}: {key!r} belongs in the table {table}")
        raise ValueError(f"{path}: unknown table {key!r}{spelling_hint(key, TOP_LEVEL_KEYS)}")
    setting = content.get("setting", {})
    for key in setting if isinstance(setting, dict) else ():
        if key not in settings and key in tables:
            raise ValueError(f"{path}: {key!r} belongs in the table {tables[key]}, not [setting]")


def _values(table: object) -> list[object]:
    return list(table.values()) if isinstance(table, dict) else []
