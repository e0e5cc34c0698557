"""Synthetic run folders, with the files that `aquila run` writes, for tests of their readers."""

import json
import math
from pathlib import Path

import pytest

from aquila.report.figures import FIGURES
from aquila.sim.records import Record, write_records
from aquila.sim.setting import Setting


def improving_record(round: int, devices: int = 4, level: int = 4, **changes: object) -> Record:
    """Return a round with better metrics than the one before; device 0 skips every second round."""
    levels = {d: level + (d + round) % 3 for d in range(devices) if d or round % 2 == 0}
    uplink = {d: 1000 * levels.get(d, 0) + 29 for d in range(devices)}
    values: dict[str, object] = {
        "round": round,
        "loss": 2.3 / (1 + round),
        "uplink_bytes": sum(uplink.values()),
        "uplink_header_bytes": 29 * devices,
        "downlink_bytes": 40_000 * devices,
        "downlink_header_bytes": 72 * devices,
        "paper_bits": 8000 * sum(levels.values()),
        "uploads": len(levels),
        "skips": devices - len(levels),
        "lost": 0,
        "refused": 0,
        "levels": levels,
        "uplink": uplink,
        "error_ratio": 0.5 + 0.1 * math.sin(round),
        "metrics": {"test_accuracy": 1 - 0.9 / (1 + round)},
    }
    return Record(**{**values, **changes})  # type: ignore[arg-type]


def write_run(
    folder: Path,
    method: str = "aquila",
    rounds: int = 12,
    devices: int = 4,
    level: int = 4,
    facts: dict[str, object] | None = None,
    **changes: object,
) -> Path:
    """Write a folder as `aquila run` does, and return it."""
    folder.mkdir(parents=True)
    records = [improving_record(n, devices, level, **changes) for n in range(rounds)]
    write_records(folder, records)
    setting = Setting(rounds=rounds, devices=devices, split="iid").to_dict()
    metadata = {"method": method, "parameters": {}, **setting, "torch": "2.0", "gpu": "none"}
    (folder / "run.json").write_text(json.dumps({**metadata, **(facts or {})}))
    owners = [sample % devices for sample in range(10 * devices)]
    (folder / "split.json").write_text(json.dumps({"device_of_sample": owners}))
    return folder


def write_comparison(folder: Path) -> Path:
    """Write AQUILA at level 4, one more variant of it, and methods at higher levels."""
    for method, level in {"aquila": 4, "aquila b_min=2": 5, "fedsgd": 32, "qsgd": 6}.items():
        write_run(folder / method.replace(" ", "_"), method, level=level)
    return folder


def draw_only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let `aquila figures` draw few figures, for tests of where it reads and writes."""
    for name in set(FIGURES) - set(names):
        monkeypatch.delitem(FIGURES, name)
