"""No other GPU work runs during a graph capture."""

import threading

import pytest

from aquila.training.cuda_graph import CaptureLock


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
        thread.join(timeout=60)
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
    worker.join(timeout=60)
    assert not worker.is_alive()
