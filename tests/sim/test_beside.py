"""Threads that work beside the GPU, and recordings that must be alone."""

import threading

import pytest
import torch

from aquila.sim.beside import Beside
from aquila.sim.graph import Quiet


def test_without_a_gpu_work_is_done_at_once():
    done = Beside(torch.device("cpu")).submit(lambda: threading.current_thread())
    assert done.done()
    assert done.result() is threading.current_thread()


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
