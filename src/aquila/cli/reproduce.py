"""The command lines that make runs again, from what their folders tell."""

import shlex
from collections.abc import Mapping, Sequence

from aquila.cli.spec import Spec
from aquila.sim.experiment import Experiment
from aquila.sim.setting import Setting

Facts = Mapping[str, object]
LINE = 100
FOLDER = "runs/again"


def command_lines(runs: Sequence[Facts]) -> list[str]:
    """Return one `aquila compare` if the runs share a setting, else one `aquila run` each.

    Runs whose folder does not say what they are have none. The last line makes the report again.
    """
    told = [(spec, setting) for facts in runs for spec, setting in _asked(facts)]
    settings = list(dict.fromkeys(setting for _, setting in told))
    if len(told) > 1 and len(settings) == 1:
        specs = list(dict.fromkeys(spec for spec, _ in told))
        lines = [_line("compare", specs, settings[0], FOLDER)]
    else:
        lines = [
            _line("run", [spec], setting, f"{FOLDER}/{number}")
            for number, (spec, setting) in enumerate(dict.fromkeys(told), start=1)
        ]
    return [*lines, f"aquila report {FOLDER}"] if lines else []


def _asked(facts: Facts) -> list[tuple[str, Setting]]:
    """Return the method as `--method` takes it and the setting, if both can still be had."""
    fields = {name: facts[name] for name in Setting().to_dict() if name in facts}
    label = facts.get("method")
    if not isinstance(label, str) or "data" not in fields:
        return []
    try:
        setting = Setting.of(fields)
    except ValueError:
        return []
    return [(_method(label, facts.get("parameters"), setting), setting)]


def _method(label: str, settled: object, setting: Setting) -> str:
    """Return name:parameter=value,..., with the parameters that no default would give."""
    name, *given = label.split(" ")
    asked = dict(part.partition("=")[::2] for part in given)
    if isinstance(settled, Mapping):
        defaults = Spec(name, {}).settled(Experiment(setting))
        asked |= {n: _text(v) for n, v in settled.items() if defaults.get(n) != v}
    return ":".join(filter(None, (name, ",".join(f"{n}={v}" for n, v in asked.items()))))


def _line(command: str, specs: Sequence[str], setting: Setting, out: str) -> str:
    default = Setting().to_dict()
    words = [word for spec in specs for word in ("-m", spec)]
    for name, value in setting.to_dict().items():
        if value != default[name]:
            words += ["--" + name.replace("_", "-"), _text(value)]
    words += ["--out", out]
    pairs = zip(words[::2], words[1::2], strict=True)
    return _wrapped([f"aquila {command}", *(shlex.join(pair) for pair in pairs)])


def _wrapped(pieces: Sequence[str]) -> str:
    """Break a long line where a shell allows it."""
    lines = [pieces[0]]
    for piece in pieces[1:]:
        if len(lines[-1]) + len(piece) < LINE:
            lines[-1] += f" {piece}"
        else:
            lines.append(f"    {piece}")
    return " \\\n".join(lines)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
