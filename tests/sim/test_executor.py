"""Every executor and any number of workers give the same bits."""

import gc
import threading
import time
from contextlib import nullcontext

import pytest
import torch
from torch import nn

import aquila
from aquila.core.packet import Packet
from aquila.runtime.nan_guard import NonFiniteError
from aquila.sim import executor as executor_module
from aquila.sim.executor import CpuExecutor, GpuExecutor
from aquila.sim.hardware import core_count
from aquila.tasks import build_model

ROUNDS = 3


def images(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 1, 8, 8, generator=generator)
    return x, torch.randint(0, 10, (count,), generator=generator)


def network(*more):
    torch.manual_seed(3)
    return nn.Sequential(build_model("cnn", size=8, hidden=16), *more)


def problem(module=None, **options):
    x, y = images(70)
    shards = [(x[m::7], y[m::7]) for m in range(7)]
    return aquila.problem(module or network(), shards, test=(x, y), **options)


def run(made, workers=0, method="aquila", executor="auto", **parameters):
    parameters = {"alpha": 0.1, **parameters}
    return aquila.simulate(
        aquila.create(method, **parameters),
        made.theta0,
        made.devices,
        ROUNDS,
        evaluate=made.evaluate,
        options=aquila.RunOptions(fleet=made.fleet, workers=workers, executor=executor),
    )


@pytest.mark.parametrize("method", ["aquila", "laq", "marina", "qsgd", "lena"])
def test_any_number_of_workers_gives_the_same_bits(method):
    one = run(problem(), 1, method)
    for workers in (0, 2, 5):
        other = run(problem(), workers, method)
        assert other.theta.numpy().tobytes() == one.theta.numpy().tobytes()
        assert other.records == one.records


@pytest.mark.parametrize("executor", ["sequential", "batched", "threads"])
def test_every_executor_gives_the_same_bits(executor):
    chosen, named = run(problem()), run(problem(), executor=executor)
    assert named.theta.numpy().tobytes() == chosen.theta.numpy().tobytes()
    assert named.records == chosen.records


@pytest.mark.parametrize(
    ("made", "options", "message"),
    [
        ({}, {"executor": "processes"}, "sequential, batched, threads, not 'processes'"),
        ({}, {"executor": "sequential", "workers": 2}, "sequential runs 1 worker, not 2"),
        ({"batch_size": 3}, {"executor": "batched"}, "device 0 cannot run batched"),
    ],
)
def test_impossible_executor_is_rejected(made, options, message):
    with pytest.raises(ValueError, match=message):
        run(problem(**made), **options)


def test_threads_use_other_threads_and_sequential_the_callers():
    here, there = Worker(), Worker()
    here.run(executor="sequential")
    there.run(executor="threads")
    assert set(here.threads.values()) == {threading.current_thread()}
    assert threading.current_thread() not in there.threads.values()


def test_workers_give_the_same_bits_with_local_epochs_on_minibatches():
    one, three = (
        run(problem(batch_size=3, epochs=2), workers, work="epochs") for workers in (1, 3)
    )
    assert three.theta.numpy().tobytes() == one.theta.numpy().tobytes()
    assert three.records == one.records


def test_number_of_torch_threads_is_restored():
    before = torch.get_num_threads()
    for workers in (1, 3):
        run(problem(), workers)
        assert torch.get_num_threads() == before


def test_devices_that_use_the_rng_run_sequentially():
    made = problem(network(nn.Dropout(0.5)))
    assert not made.devices[0].thread_safe
    assert run(made, 0).records == run(problem(network(nn.Dropout(0.5))), 1).records
    with pytest.raises(ValueError, match="draws random numbers"):
        run(made, 2)


def test_devices_that_use_no_rng_are_thread_safe():
    assert all(device.thread_safe for device in problem().devices)


def test_negative_workers_are_rejected():
    with pytest.raises(ValueError, match="workers must be a whole number >= 0, not -1"):
        run(problem(), -1)


class Worker:
    """Devices that record the threads they ran on, and may fail."""

    def __init__(self, fails=(), seconds=0.0):
        self.threads, self.fails, self.seconds = {}, fails, seconds

    def device(self, number):
        def gradient(theta):
            time.sleep(self.seconds)
            self.threads.setdefault(number, threading.current_thread())
            if number in self.fails:
                return float("nan"), theta
            return 1.0, theta + number

        return gradient

    def run(self, devices=6, rounds=1, **options):
        made = [self.device(number) for number in range(devices)]
        method = aquila.create("fedsgd", alpha=0.1)
        return aquila.simulate(
            method, torch.ones(4), made, rounds, options=aquila.RunOptions(**options)
        )


def test_plain_functions_stay_on_the_callers_thread_unless_workers_are_set():
    alone, named = Worker(seconds=0.003), Worker(seconds=0.003)
    one, two = alone.run(), named.run(workers=2)
    assert set(alone.threads.values()) == {threading.current_thread()}
    assert threading.current_thread() not in named.threads.values()
    assert torch.equal(one.theta, two.theta)


def test_short_turns_use_no_threads(monkeypatch):
    made = problem()
    monkeypatch.setattr(executor_module, "MIN_THREADED_SECONDS", 1e9)
    monkeypatch.setattr(executor_module, "ThreadPoolExecutor", None)
    run(made, 0)


def test_error_names_the_first_device_that_fails():
    for workers in (1, 3):
        with pytest.raises(NonFiniteError, match="device 2"):
            Worker(fails=(2, 4)).run(workers=workers, on_nan="stop")


def test_interrupt_waits_for_turns_that_have_begun(monkeypatch):
    begun, ended = [], []

    def interrupted(futures):
        raise KeyboardInterrupt

    def slow(theta):
        begun.append(1)
        time.sleep(0.05)
        ended.append(1)
        return 1.0, theta

    monkeypatch.setattr(executor_module, "_collect", interrupted)
    with pytest.raises(KeyboardInterrupt):
        aquila.simulate(
            aquila.create("fedsgd"),
            torch.ones(4),
            [slow] * 20,
            1,
            options=aquila.RunOptions(workers=2),
        )
    assert len(begun) == len(ended) < 20


class NoStream:
    """Replaces CUDA streams and events, so that the GPU executor runs on a CPU."""

    def record(self):
        pass

    def wait_event(self, event):
        pass

    def synchronize(self):
        pass


@pytest.fixture
def without_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Stream", NoStream)
    monkeypatch.setattr(torch.cuda, "Event", NoStream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())


class RecordingWork:
    """A round that records the thread of every step; replies of odd devices are lost."""

    devices = range(6)

    def __init__(self, fails=None):
        self.answered, self.delivered, self.fails = {}, {}, fails

    def prefetch(self, devices):
        raise AssertionError("only sequential turns are announced")

    def answer(self, device):
        self.answered[device] = threading.current_thread().name
        if device == self.fails:
            raise RuntimeError(f"device {device} failed")
        return Packet(device)

    def deliver(self, device, reply):
        assert reply.round == device
        self.delivered[device] = threading.current_thread().name
        return device % 2 == 0


@pytest.mark.parametrize(("workers", "name"), [(1, "MainThread"), (3, "device")])
def test_gpu_executor_packs_replies_on_other_threads(without_cuda, workers, name):
    work = RecordingWork()
    assert GpuExecutor(thread_safe=True, workers=workers).run(work) == 3
    assert sorted(work.answered) == sorted(work.delivered) == list(work.devices)
    assert all(thread.startswith(name) for thread in work.answered.values())
    assert all(thread.startswith("coding") for thread in work.delivered.values())


@pytest.mark.parametrize("workers", [1, 3])
def test_gpu_executor_finishes_deliveries_before_it_reports_a_failure(without_cuda, workers):
    work = RecordingWork(fails=2)
    with pytest.raises(RuntimeError, match="device 2 failed"):
        GpuExecutor(thread_safe=True, workers=workers).run(work)
    assert set(work.delivered) == set(work.answered) - {2}


def test_gpu_executor_gives_the_same_bits_as_the_cpu_executor(without_cuda):
    devices = [Worker().device(number) for number in range(6)]
    method = aquila.create("aquila", alpha=0.1)
    cpu, gpu = (aquila.Simulation(method, torch.ones(4), devices) for _ in range(2))
    gpu._executor = GpuExecutor(thread_safe=True, workers=2)
    assert [gpu.advance() for _ in range(ROUNDS)] == [cpu.advance() for _ in range(ROUNDS)]
    assert torch.equal(gpu.theta, cpu.theta)


@pytest.mark.parametrize("fails", [False, True])
def test_garbage_collection_is_as_before_after_a_round(fails):
    inside, before = [], gc.get_threshold()

    def loss(theta):
        inside.append(gc.get_threshold()[0])
        if fails and len(inside) == 30:
            raise RuntimeError("stop")
        return 0.0, torch.ones_like(theta)

    method = aquila.create("fedsgd", alpha=0.1)
    with pytest.raises(RuntimeError, match="stop") if fails else nullcontext():
        aquila.simulate(method, torch.zeros(3), [loss] * 40, rounds=1)
    assert inside[-1] > before[0]
    assert gc.get_threshold() == before


@pytest.mark.parametrize(
    ("turns_ms", "timed", "threads"),
    [
        ([9, 1, 9], 2, False),
        ([9, 5, 4, 1, 9], 4, False),
        ([9, 30, 1], 2, True),
        ([9, 5, 5, 5, 5, 5, 1], 6, True),
        ([9, 5], 2, True),
    ],
    ids=str,
)
def test_short_and_long_turns_choose_the_workers(monkeypatch, turns_ms, timed, threads):
    clock = iter(ms / 1000 for length in turns_ms[1:] for ms in (0, length))
    monkeypatch.setattr(executor_module.time, "thread_time", lambda: next(clock))
    chosen = CpuExecutor(thread_safe=True, workers=0)
    done = []
    chosen._choose_workers(lambda device: not done.append(device), range(len(turns_ms)))
    assert done == list(range(timed))
    assert chosen._workers == (core_count() if threads else 1)
