"""Recordings of graphs must be alone."""

import threading

import pytest

from aquila.sim.graph import Quiet


def test_recording_waits_for_work_and_keeps_new_work_waiting():
    quiet, order = Quiet(), []
    started, may_end = threading.Event(), threading.Event()

    def work():
        with quiet.working():
            started.set()
            may_end.wait()
            order.append("work")

    def record():
        with quiet.alone():
            order.append("recording")

    worker, recorder = threading.Thread(target=work), threading.Thread(target=record)
    worker.start()
    started.wait()
    recorder.start()
    may_end.set()
    for thread in (worker, recorder):
        thread.join()
    with quiet.working():
        order.append("more work")
    assert order == ["work", "recording", "more work"]


def test_work_that_fails_does_not_block_recordings():
    quiet = Quiet()
    with pytest.raises(ValueError, match="failed"), quiet.working():
        raise ValueError("failed")
    with quiet.alone():
        pass


def test_whoever_works_may_record_once_the_others_have_stopped():
    quiet, order = Quiet(), []
    both = threading.Barrier(2)

    def work(name):
        with quiet.working():
            both.wait()
            with quiet.alone():
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
