"""Models on several threads draw from torch's generators one at a time."""

import threading

import pytest
import torch

from aquila.training.cuda_graph import CAPTURE_LOCK
from aquila.training.rng_lock import RngLock


def test_models_draw_one_at_a_time_and_restore_the_generator():
    rng_lock, drawn, both = RngLock(), {}, threading.Barrier(4)
    before = torch.get_rng_state()

    def draw(seed):
        both.wait()
        with rng_lock.seeded(seed, torch.device("cpu")):
            drawn[seed] = [torch.rand(()).item() for _ in range(500)]

    threads = [threading.Thread(target=draw, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert torch.equal(torch.get_rng_state(), before)
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        assert drawn[seed] == [torch.rand((), generator=generator).item() for _ in range(500)]


def test_waiting_to_draw_does_not_block_a_capture():
    rng_lock, waiting = RngLock(), threading.Event()
    cpu = torch.device("cpu")

    def draw_later():
        with CAPTURE_LOCK.shared():
            waiting.set()
            with rng_lock.seeded(1, cpu):
                pass

    later = threading.Thread(target=draw_later)
    with CAPTURE_LOCK.shared(), rng_lock.seeded(0, cpu):
        later.start()
        waiting.wait()
        with CAPTURE_LOCK.exclusive():
            pass
    later.join(timeout=60)
    assert not later.is_alive()


def test_failure_while_drawing_releases_the_lock():
    rng_lock, cpu = RngLock(), torch.device("cpu")
    with pytest.raises(ValueError, match="failed"), rng_lock.seeded(0, cpu):
        raise ValueError("failed")
    with rng_lock.seeded(0, cpu):
        pass


def test_a_model_may_draw_within_its_own_turn():
    rng_lock, cpu = RngLock(), torch.device("cpu")
    with rng_lock.seeded(0, cpu):
        expected = torch.rand(2).tolist()
    with rng_lock.seeded(0, cpu):
        first = torch.rand(()).item()
        with rng_lock.seeded(1, cpu):
            torch.rand(5)
        assert [first, torch.rand(()).item()] == expected
