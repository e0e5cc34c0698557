"""Devices that upload in every n-th round: their models, their messages and lost uploads."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import aquila
from aquila.core.fleet import Fleet
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.random import Key
from aquila.methods.parts.periodic_device import NO_PERIOD, ROUNDS_PER_UPLOAD
from aquila.methods.parts.periodic_uploads import rounds_per_upload
from aquila.sim.oracle import FunctionOracle
from helpers.problems import device_states, ridge

DIMENSION, DEVICES, STEPS = 12, 4, 3
PROBLEM = ridge(devices=DEVICES, dimension=DIMENSION)
ALPHA = 0.3 / PROBLEM.smoothness()


def start(name="fedavg", seed=0, options=aquila.RunOptions(), steps=STEPS, **parameters):
    method = aquila.create(name, alpha=ALPHA, **parameters)
    devices = [FunctionOracle(local, local_steps=steps) for local in PROBLEM.devices]
    return aquila.Simulation(
        method, torch.zeros(DIMENSION, dtype=torch.float64), devices, seed, options
    )


def trained(device, theta, alpha):
    """Return the model after the local steps of a device."""
    for _ in range(STEPS):
        theta = theta - alpha * PROBLEM.devices[device](theta)[1]
    return theta


@pytest.mark.parametrize("schedule", ["constant", "cosine:6"])
def test_server_averages_models_that_devices_trained_for_several_rounds(schedule):
    rounds, every = 6, 3
    run = start(upload_every=every, options=aquila.RunOptions(schedule=schedule))
    factors = [1.0] * rounds
    if schedule != "constant":
        factors = [0.5 * (1 + np.cos(np.pi * k / rounds)) for k in range(rounds)]
    theta = torch.zeros(DIMENSION, dtype=torch.float64)
    for first in range(0, rounds, every):
        models = [theta] * DEVICES
        for k in range(first, first + every):
            models = [trained(m, model, ALPHA * factors[k]) for m, model in enumerate(models)]
            assert torch.equal(run.theta, theta)
            run.advance()
        torch.testing.assert_close(run.theta, torch.stack(models).mean(0), rtol=1e-9, atol=1e-11)
        theta = run.theta


def test_rounds_without_uploads_cost_only_headers():
    run = start(upload_every=3)
    records = [run.advance() for _ in range(6)]
    assert [record.uploads for record in records] == [0, 0, DEVICES] * 2
    assert [record.skips for record in records] == [DEVICES, DEVICES, 0] * 2
    assert records[0].uplink_bytes < 16 * DEVICES < 8 * DIMENSION * DEVICES
    assert records[2].uplink_bytes > 8 * DIMENSION * DEVICES


def test_single_gradients_are_local_steps_too():
    run = start("aquila_dither", work="gradient", upload_every=2, density=0.7, memory="none")
    run.advance()
    for m, state in enumerate(device_states(run)):
        step = ALPHA * PROBLEM.devices[m](run.theta)[1]
        torch.testing.assert_close(state.progress, step)
    run.advance()
    assert all(state.period == NO_PERIOD for state in device_states(run))
    assert not any(state.progress.any() for state in device_states(run))


class Ones:
    """Data whose updates are ones; it records the models that it is evaluated at."""

    samples = 1

    def __init__(self):
        self.models = []

    def train(self, theta, alpha):
        self.models.append(theta.tolist())
        if not theta.isfinite().all():
            raise ArithmeticError("not finite")
        return 1.0, torch.ones(3)


DEVICE = aquila.create("fedavg", alpha=0.5, upload_every=2).device


def turn_of(round_number, state=None, data=None, rounds=2.0):
    """Return the turn of a device in a round."""
    order = Packet(round_number, Dense(torch.tensor([1.0, 2.0, 3.0])), {ROUNDS_PER_UPLOAD: rounds})
    state = DEVICE.init(torch.zeros(3)) if state is None else state
    return DEVICE.step(state, order, data or Ones(), None)


def test_device_drops_a_lost_upload_but_keeps_training_that_nobody_waits_for():
    training = turn_of(0)
    assert training.reply.vector is None
    assert training.fallback is training.state
    data = Ones()
    upload = turn_of(1, training.state, data)
    assert data.models == [[0.5, 1.5, 2.5]]  # the local model after one step of 0.5
    assert upload.reply.vector.decode().tolist() == [2.0, 2.0, 2.0]
    for state in (upload.state, upload.fallback):
        assert state.period == NO_PERIOD
        assert not state.progress.any()


@pytest.mark.parametrize("round_number", [2, 3, 7])
def test_device_that_missed_the_round_with_uploads_starts_at_the_model_of_the_server(round_number):
    data = Ones()
    turn_of(round_number, turn_of(0).state, data)
    assert data.models == [[1.0, 2.0, 3.0]]


def test_device_drops_a_local_model_that_is_not_finite(caplog):
    data = Ones()
    broken = replace(turn_of(0).state, progress=torch.full((3,), torch.inf))
    upload = turn_of(1, broken, data)
    assert data.models[1:] == [[1.0, 2.0, 3.0]]
    assert upload.reply.vector.decode().tolist() == [1.0, 1.0, 1.0]
    assert "round 1: a device drops a local model with NaN" in caplog.text


@pytest.mark.parametrize("rounds", [0.0, 1.5, -2.0, 1001.0, float("nan"), float("inf")])
def test_orders_with_a_wrong_number_of_rounds_are_refused(rounds):
    with pytest.raises(WireError, match="it must be a whole number from 1 to 1000"):
        turn_of(1, rounds=rounds)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov", "adam", "yogi"])
def test_two_rounds_per_upload_are_rounds_of_twice_as_many_local_steps(optimizer):
    """The server optimizer, too, sees only the rounds with uploads."""
    options = aquila.RunOptions(server_optimizer=optimizer, server_lr=0.1)
    short, whole = start(upload_every=2, options=options), start(options=options, steps=2 * STEPS)
    for _ in range(4):
        whole.advance()
        before = short.theta
        short.advance()
        assert torch.equal(short.theta, before)
        short.advance()
        torch.testing.assert_close(short.theta, whole.theta, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_memories_stay_consistent(loss):
    options = aquila.RunOptions(uplink_loss=loss)
    run = start("aquila_topk", 1, options, work="epochs", upload_every=2, density=0.3)
    for _ in range(20):
        run.advance()
        mean = torch.stack([state.inner.q for state in device_states(run)]).mean(0)
        q_bar = run.server.half.memory(run.server.state)
        torch.testing.assert_close(q_bar, mean, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["fedavg", "aquila_dither", "aquila_topk"])
def test_a_run_resumes_between_uploads_with_the_same_bits(name, tmp_path):
    parameters = {} if name == "fedavg" else {"work": "epochs"}
    method = aquila.create(name, alpha=ALPHA, upload_every=3, **parameters)
    devices = [FunctionOracle(local, local_steps=STEPS) for local in PROBLEM.devices]
    theta = torch.zeros(DIMENSION, dtype=torch.float64)

    def train(rounds, folder, **options):
        given = aquila.RunOptions(out=tmp_path / folder, **options)
        return aquila.simulate(method, theta, devices, rounds, options=given)

    whole = train(8, "whole")
    train(4, "parts")
    assert torch.equal(train(8, "parts", resume=True).theta, whole.theta)


def fleet(parameters, devices=10, participation=1.0):
    return Fleet.uniform(parameters, devices).with_participation(participation)


def test_large_models_upload_every_second_round_by_default():
    assert rounds_per_upload(0, fleet(2_370_148)) == 2
    assert rounds_per_upload(0, fleet(125_602)) == 1
    assert rounds_per_upload(0, fleet(11_172_170, participation=0.5)) == 1
    assert rounds_per_upload(7, fleet(125_602, participation=0.5)) == 7


def test_an_upload_of_two_rounds_has_twice_the_density():
    server = aquila.create("aquila_dither", work="epochs").server
    large = fleet(11_172_170)
    state = server.init(torch.zeros(1), large)
    state, orders = server.orders(state, large, 0, Key((0,)))
    assert orders[3] == {ROUNDS_PER_UPLOAD: 2.0}
    _, orders = server.orders(state, large, 1, Key((0,)))
    assert orders[3] == {"share": 0.03, ROUNDS_PER_UPLOAD: 2.0}


def test_defaults_for_single_gradients_and_local_epochs():
    gradients, epochs = (aquila.create("aquila_dither", work=w) for w in ("gradient", "epochs"))
    assert "Periodic" not in repr(gradients)
    for parameters, names in ((1_000_000, ["share", "rate"]), (1_000_001, ["share"])):
        large = fleet(parameters)
        for server, wanted in ((gradients.server, ["share", "rate"]), (epochs.server.inner, names)):
            _, orders = server.orders(server.init(torch.zeros(1), large), large, 0, Key((0,)))
            assert list(orders[0]) == wanted  # without a rate, there is no memory


def test_noise_for_privacy_needs_a_mean_of_uploads():
    assert aquila.create("fedavg", upload_every=2).server.steps_along_mean
    assert not aquila.create("aquila_topk", work="epochs", upload_every=2).server.steps_along_mean


@pytest.mark.parametrize("every", [-1, 1001, 2.5])
def test_wrong_numbers_of_rounds_are_named(every):
    with pytest.raises(ValueError, match="upload_every must be"):
        aquila.create("fedavg", upload_every=every)


def test_fedavg_on_a_fraction_of_the_devices_uploads_in_every_round():
    with pytest.raises(ValueError, match="upload_every must be 1 if fraction is below 1, not 2"):
        aquila.create("fedavg", fraction=0.5, upload_every=2)
