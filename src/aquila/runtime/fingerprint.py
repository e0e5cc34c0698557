"""Fingerprints of runs: texts with one line per property, which a resumed run must match."""

import re

METHOD_NAME = re.compile(r"method Method\(name='(\w+)'")


def fingerprint_differences(saved: str, requested: str) -> list[str]:
    """Return one entry per property that differs; none if the fingerprints are equal."""
    new, old = _lines_only_in(requested, saved), _lines_only_in(saved, requested)
    new_method, old_method = (METHOD_NAME.match(lines.get("method", "")) for lines in (new, old))
    if new_method and old_method and new_method[1] != old_method[1]:
        # the parameters of two different methods say nothing more
        new["method"], old["method"] = f"method {new_method[1]}", f"method {old_method[1]}"
    return [f"{new.get(name, f'no {name}')} (saved: {old.get(name, 'none')})" for name in new | old]


def _lines_only_in(fingerprint: str, other: str) -> dict[str, str]:
    """Return the lines that only the first fingerprint has, keyed by their first word."""
    lines: dict[str, str] = {}
    for line in dict.fromkeys(fingerprint.splitlines()):
        if line not in other.splitlines():
            name = line.partition(" ")[0]
            lines[name] = f"{lines[name]}, {line}" if name in lines else line
    return lines
