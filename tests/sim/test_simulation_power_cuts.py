"""A power cut at any call leaves a simulation that can be resumed from its last checkpoint."""

from contextlib import suppress
from pathlib import Path

import pytest
import torch

import aquila
from helpers.power_cut import recorded_disk
from helpers.problems import ridge

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux")
PROBLEM = ridge(devices=2, dimension=3)
METHOD = aquila.create("laq", alpha=0.1, bits=4)
ROUNDS, EVERY = 6, 2


def run(folder, resume, on_record=None):
    options = aquila.RunOptions(
        out=folder, checkpoint_every=EVERY, keep_checkpoints=1, resume=resume
    )
    theta = torch.zeros(3)
    return aquila.simulate(
        METHOD, theta, PROBLEM.devices, ROUNDS, options=options, on_record=on_record
    )


def test_simulation_survives_a_power_cut_at_every_call(tmp_path):
    root = tmp_path / "disk"
    root.mkdir()
    with recorded_disk(root) as disk:

        def count(record):
            disk.progress = record.round + 1

        whole = run(root / "run", resume=False, on_record=count)
    assert len(disk.images) > 50
    for number, image in enumerate(disk.images):
        folder = tmp_path / str(number) / "run"
        image.write(folder.parent)
        if image.progress < EVERY and not (folder / "checkpoint.npz").exists():
            with suppress(ValueError):  # it may refuse records without a checkpoint
                run(folder, resume=True)
            continue
        resumed = run(folder, resume=True)
        assert torch.equal(resumed.theta, whole.theta)
        assert resumed.records == whole.records
