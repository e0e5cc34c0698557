"""No other GPU work runs during a graph capture."""

import threading

import pytest
import torch

from aquila.training.cuda_graph import CAPTURE_LOCK, CaptureLock, RngLock


def test_capture_waits_for_work_and_blocks_new_work():
    lock, order = CaptureLock(), []
    started, may_end = threading.Event(), threading.Event()

    def work():
        with lock.shared():
            started.set()
            may_end.wait()
            order.append("work")

    def record():
        with lock.exclusive():
            order.append("recording")

    worker, recorder = threading.Thread(target=work), threading.Thread(target=record)
    worker.start()
    started.wait()
    recorder.start()
    may_end.set()
    for thread in (worker, recorder):
        thread.join()
    with lock.shared():
        order.append("more work")
    assert order == ["work", "recording", "more work"]


def test_failed_work_does_not_block_a_capture():
    lock = CaptureLock()
    with pytest.raises(ValueError, match="failed"), lock.shared():
        raise ValueError("failed")
    with lock.exclusive():
        pass


def test_worker_can_capture_once_others_have_stopped():
    lock, order = CaptureLock(), []
    both = threading.Barrier(2)

    def work(name):
        with lock.shared():
            both.wait()
            with lock.exclusive():
                order.append(f"{name} begins")
                order.append(f"{name} ends")

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert not any(thread.is_alive() for thread in threads)
    assert order in (
        ["a begins", "a ends", "b begins", "b ends"],
        ["b begins", "b ends", "a begins", "a ends"],
    )


def test_capture_does_not_wait_for_released_work():
    lock = CaptureLock()
    resting, recorded = threading.Event(), threading.Event()

    def work():
        with lock.shared():
            with lock.released():
                resting.set()
                recorded.wait()
            with lock.exclusive():
                pass

    worker = threading.Thread(target=work)
    worker.start()
    resting.wait()
    with lock.exclusive():
        recorded.set()
    worker.join(timeout=10)
    assert not worker.is_alive()


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
        thread.join(timeout=10)
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
    later.join(timeout=10)
    assert not later.is_alive()


def test_failure_while_drawing_releases_the_lock():
    rng_lock, cpu = RngLock(), torch.device("cpu")
    with pytest.raises(ValueError, match="failed"), rng_lock.seeded(0, cpu):
        raise ValueError("failed")
    with rng_lock.seeded(0, cpu):
        pass
