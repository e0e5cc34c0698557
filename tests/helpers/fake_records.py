"""Synthetic records, and folders of runs with the settings of a row of the paper's tables."""

import json
from pathlib import Path

from aquila.sim.records import Record, write_records


def fake_record(round: int, **changes: object) -> Record:
    """Return a round of two devices: one sent 4 bits for each of 1000 coordinates, one skipped."""
    values: dict[str, object] = {
        "round": round, "loss": 1 / (round + 1), "uplink_bytes": 2**20, "uplink_header_bytes": 20,
        "downlink_bytes": 2**21, "downlink_header_bytes": 40, "paper_bits": 4000, "uploads": 1,
        "skips": 1, "lost": 0, "refused": 0, "levels": {0: 4}, "uplink": {0: 2**20 - 20, 1: 20},
        "error_ratio": 0.5, "notes": {}, "metrics": {"test_accuracy": 0.5},
    }  # fmt: skip
    return Record(**{**values, **changes})


def write_fake_run(folder: Path, method: str, records: list[Record], /, **facts: object) -> Path:
    """Write the folder of a run with the settings of the paper's CIFAR-10, IID row.

    `facts` override settings."""
    setting = {
        "method": method, "data": "cifar10", "samples": 0, "test_samples": 0, "model": "resnet18",
        "widths": "1", "devices": 10, "split": "iid", "mask_classes": False, "rounds": 200,
        "seed": 0, "work": "epochs", "batch_size": 256, "epochs": 1, "uplink_loss": 0.0,
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({**setting, **facts}))
    write_records(folder, records)
    return folder
