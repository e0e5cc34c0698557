"""A power cut at any call leaves a simulation that can be resumed from its last checkpoint."""

from pathlib import Path

import pytest
import torch

import aquila
from helpers.power_cut import recorded_disk
from helpers.problems import ridge

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux")
PROBLEM = ridge(devices=2, dimension=3)
METHOD = aquila.create("laq", bits=5)


def simulate(rounds, on_record=None, **options):
    options = aquila.RunOptions(checkpoint_every=2, keep_checkpoints=1, workers=1, **options)
    return aquila.simulate(
        METHOD, torch.zeros(3), PROBLEM.devices, rounds, on_record=on_record, options=options
    )


def test_simulation_survives_a_power_cut_at_every_call(tmp_path):
    root = tmp_path / "disk"
    root.mkdir()
    whole, resumed = simulate(6), 0

    def on_record(record):
        disk.progress = (record.round + 1) // 2 * 2

    with recorded_disk(root) as disk:
        simulate(6, on_record, out=root / "run")
    assert len(disk.images) > 30
    for number, image in enumerate(disk.images):
        image.write(tmp_path / str(number))
        folder = tmp_path / str(number) / "run"
        if not (folder / "checkpoint.npz").exists():
            assert image.progress == 0
            continue
        done = []
        again = simulate(6, lambda record, done=done: done.append(record), out=folder, resume=True)
        assert again.records == whole.records
        assert torch.equal(again.theta, whole.theta)
        assert len(done) <= 6 - image.progress
        resumed += 1
    assert resumed > 15
