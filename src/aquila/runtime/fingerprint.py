"""Fingerprints of runs: texts with one line per property, which a resumed run must match."""

import re

SHARDS = "shards"
"""First word of the line with one digest of its data per device."""
PARAMETER = re.compile(r"\w+=[^,()]+(?=[,)])")
METHOD_NAME = re.compile(r"method Method\(name='(\w+)'")


def fingerprint_differences(saved: str, requested: str) -> list[str]:
    """Return one entry per property that differs; none if the fingerprints are equal."""
    new, old = _lines_only_in(requested, saved), _lines_only_in(saved, requested)
    new_method, old_method = (METHOD_NAME.match(lines.get("method", "")) for lines in (new, old))
    if new_method and old_method and new_method[1] != old_method[1]:
        # the parameters of two different methods say nothing more
        new["method"], old["method"] = f"method {new_method[1]}", f"method {old_method[1]}"
    elif new_method and old_method:
        new["method"], old["method"] = _parameters_only_in(new, old), _parameters_only_in(old, new)
    shards = [lines.pop(SHARDS, "") for lines in (new, old)]
    differences = [
        f"{new.get(name, f'no {name}')} (saved: {old.get(name, 'none')})" for name in new | old
    ]
    return [*differences, *_data_differences(*shards)]


def _parameters_only_in(lines: dict[str, str], other: dict[str, str]) -> str:
    """Return the parameters of a method that the other fingerprint does not have."""
    found, others = (PARAMETER.findall(each["method"]) for each in (lines, other))
    different = dict.fromkeys(text for text in found if text not in others)
    return f"method {', '.join(different)}" if different else lines["method"]


def _data_differences(new: str, old: str) -> list[str]:
    """Say which devices have other data; nothing if the number of devices differs."""
    pairs = list(zip(new.split(" ")[1:], old.split(" ")[1:], strict=False))
    changed = [device for device, (digest, saved) in enumerate(pairs) if digest != saved]
    if len(changed) > 1:
        return [f"{len(changed)} devices have other data, the first is device {changed[0]}"]
    return [f"device {device} has other data" for device in changed]


def _lines_only_in(fingerprint: str, other: str) -> dict[str, str]:
    """Return the lines that only the first fingerprint has, keyed by their first word."""
    lines: dict[str, str] = {}
    for line in dict.fromkeys(fingerprint.splitlines()):
        if line not in other.splitlines():
            name = line.partition(" ")[0]
            lines[name] = f"{lines[name]}, {line}" if name in lines else line
    return lines
