"""Command lines that reproduce runs, from the files in their folders."""

import shlex
from collections.abc import Mapping, Sequence

from aquila.cli.method_spec import MethodSpec
from aquila.sim.experiment import Experiment
from aquila.sim.setting import PYTHON, Setting

Facts = Mapping[str, object]
"""The content of a run's `run.json`."""
LINE_WIDTH = 100
OUT_FOLDER = "runs/again"


def command_lines(runs: Sequence[Facts]) -> list[str]:
    """Return one `aquila compare` if the runs share a setting, else one `aquila run` per run.

    Runs without a readable setting are left out. The last line writes the report.
    """
    described = [found for facts in runs if (found := _method_and_setting(facts)) is not None]
    settings = list(dict.fromkeys(setting for _, setting in described))
    if len(described) > 1 and len(settings) == 1:
        specs = list(dict.fromkeys(spec for spec, _ in described))
        lines = [_command_line("compare", specs, settings[0], OUT_FOLDER)]
    else:
        lines = [
            _command_line("run", [spec], setting, f"{OUT_FOLDER}/{number}")
            for number, (spec, setting) in enumerate(dict.fromkeys(described), start=1)
        ]
    return [*lines, f"aquila report {OUT_FOLDER}"] if lines else []


def _method_and_setting(facts: Facts) -> tuple[str, Setting] | None:
    """Return the method as an argument of `--method`, and the setting; None if unreadable."""
    fields = {name: facts[name] for name in Setting().to_dict() if name in facts}
    label = facts.get("method")
    if not isinstance(label, str) or "data" not in fields or facts.get("started_from") == PYTHON:
        return None
    try:
        setting = Setting.of(fields)
    except ValueError:
        return None
    return _method_option(label, facts.get("parameters"), setting), setting


def _method_option(label: str, parameters: object, setting: Setting) -> str:
    """Return name:parameter=value,... with the parameters that differ from the defaults."""
    name, *given = label.split(" ")
    chosen = dict(part.partition("=")[::2] for part in given)
    if isinstance(parameters, Mapping):
        defaults = MethodSpec(name, {}).all_parameters(Experiment(setting))
        chosen |= {n: _text(v) for n, v in parameters.items() if defaults.get(n) != v}
    return ":".join(filter(None, (name, ",".join(f"{n}={v}" for n, v in chosen.items()))))


def _command_line(command: str, specs: Sequence[str], setting: Setting, out: str) -> str:
    default = Setting().to_dict()
    words = [word for spec in specs for word in ("-m", spec)]
    for name, value in setting.to_dict().items():
        if value != default[name]:
            words += ["--" + name.replace("_", "-"), _text(value)]
    words += ["--out", out]
    pairs = zip(words[::2], words[1::2], strict=True)
    return _wrap([f"aquila {command}", *(shlex.join(pair) for pair in pairs)])


def _wrap(pieces: Sequence[str]) -> str:
    """Break a long command line with backslashes."""
    lines = [pieces[0]]
    for piece in pieces[1:]:
        if len(lines[-1]) + len(piece) < LINE_WIDTH:
            lines[-1] += f" {piece}"
        else:
            lines.append(f"    {piece}")
    return " \\\n".join(lines)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
