"""AQUILA against a numpy implementation of its paper, and how levels affect convergence."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import aquila
from aquila.core.packet import Packet
from aquila.core.wire import pack

SKIP_FRAME = len(pack(Packet(0, refers_to=1)))


class Algorithm1:
    """The paper's Algorithm 1 with averages instead of sums; round 0 uploads, R = 0 skips."""

    def __init__(self, gradients, theta0, alpha, beta, b_min=1):
        self.gradients, self.alpha, self.beta, self.b_min = gradients, alpha, beta, b_min
        self.theta, self.previous, self.round = theta0, theta0, 0
        self.q = np.zeros_like(gradients(theta0))

    def advance(self):
        """Run a round; return the levels of the devices that uploaded."""
        levels = {}
        for m, v in enumerate(self.gradients(self.theta) - self.q):
            b = self.level(v)
            if b is None:
                continue
            dq = self.quantize(v, b)
            error = v - dq
            threshold = self.beta / self.alpha**2 * self.square(self.theta - self.previous)
            if self.round == 0 or self.square(dq) + self.square(error) > threshold:
                self.q[m] += dq
                levels[m] = b
        self.previous, self.theta = self.theta, self.theta - self.alpha * self.q.mean(axis=0)
        self.round += 1
        return levels

    def level(self, v):
        R, norm = np.max(np.abs(v)), math.sqrt(self.square(v))
        if R == 0:
            return None
        return max(self.b_min, math.floor(math.log2(R * math.sqrt(v.size) / norm + 1)))

    @staticmethod
    def quantize(v, b):
        R, tau = np.max(np.abs(v)), 1 / (2**b - 1)
        psi = np.floor((v + R) / (2 * tau * R) + 1 / 2)
        return 2 * tau * R * psi - R

    @staticmethod
    def square(v):
        return float(np.sum(v * v))


class Ridge:
    """f_m(θ) = ||A_m θ - y_m||² / (2n) + λ/2 ||θ||²; `low` is the scale of the last feature."""

    def __init__(self, seed=0, devices=10, d=400, n=60, penalty=0.1, low=1.0):
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((devices, n, d)) * np.geomspace(1, low, d)
        y = A @ rng.standard_normal(d) + 0.1 * rng.standard_normal((devices, n))
        self.A, self.y, self.penalty = A, y, penalty
        self.hessian = np.tensordot(A, A, ((0, 1), (0, 1))) / (devices * n) + penalty * np.eye(d)
        self.L = float(np.linalg.eigvalsh(self.hessian)[-1])
        self.optimum = np.linalg.solve(self.hessian, np.tensordot(A, y, ((0, 1), (0, 1))) / y.size)
        self.theta0 = torch.zeros(d, dtype=torch.float64)

    def gradients(self, theta):
        pulled = [A.T @ (A @ theta - y) for A, y in zip(self.A, self.y, strict=True)]
        return np.stack(pulled) / self.y.shape[1] + self.penalty * theta

    def gap(self, theta):
        away = np.asarray(theta) - self.optimum
        return float(away @ self.hessian @ away) / 2

    @property
    def devices(self):
        return [self.device(A, y) for A, y in zip(self.A, self.y, strict=True)]

    def device(self, A, y):
        A, y = torch.from_numpy(A), torch.from_numpy(y)
        return lambda theta: (0.0, A.T @ (A @ theta - y) / len(y) + self.penalty * theta)

    def descent(self, alpha, rounds):
        """Plain gradient descent."""
        theta = self.theta0.numpy()
        for _ in range(rounds):
            theta = theta - alpha * self.gradients(theta).mean(axis=0)
        return theta


def memories(simulation):
    for m, device in enumerate(simulation.devices):
        device.apply_ack(simulation.server.acks[m])
    return np.stack([device.state.q.numpy() for device in simulation.devices])


def run_and_compare(simulation, reference, rounds):
    """Run both, assert that they agree in every round, and return the levels of every round."""
    history = []
    for _ in range(rounds):
        levels = reference.advance()
        record = simulation.advance()
        assert record.levels == levels
        assert record.skips == len(reference.q) - len(levels)
        for ours, theirs in (
            (simulation.theta, reference.theta),
            (memories(simulation), reference.q),
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9 * np.abs(theirs).max())
        history.append(levels)
    return history


def require_variety(history):
    """A comparison is meaningful only if it has uploads of several levels, and skips."""
    assert len({b for levels in history for b in levels.values()}) >= 2
    assert 0 < sum(map(len, history[1:])) < len(history[0]) * len(history[1:])


@pytest.mark.parametrize(
    ("d", "low", "relative_step", "beta", "b_min"),
    [(40, 0.01, 0.02, 1.25, 1), (200, 0.001, 0.5, 0.25, 1), (400, 0.1, 0.5, 0.25, 2)],
)
def test_ridge_regression_follows_algorithm_1_round_by_round(d, low, relative_step, beta, b_min):
    ridge = Ridge(d=d, low=low)
    alpha = relative_step / ridge.L
    method = aquila.create("aquila", alpha=alpha, beta=beta, b_min=b_min)
    simulation = aquila.Simulation(method, ridge.theta0, ridge.devices)
    reference = Algorithm1(ridge.gradients, ridge.theta0.numpy(), alpha, beta, b_min)
    require_variety(run_and_compare(simulation, reference, rounds=60))


def network_and_data(seed=0, devices=4, samples=30):
    generator = torch.Generator().manual_seed(seed)
    module = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).double()
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=generator, dtype=torch.float64))
    x = torch.randn(devices, samples, 8, generator=generator, dtype=torch.float64)
    x[:, :, 0] *= 10  # one large input gives heavy-tailed gradients and thus high levels
    y = torch.randint(3, (devices, samples), generator=generator)
    return module, list(zip(x, y, strict=True))


def network_gradients(module, shards):
    """One gradient per device, by autograd over plain tensors."""
    shapes = [p.shape for p in module.parameters()]

    def gradients(theta):
        rows = []
        for x, y in shards:
            flat = torch.tensor(theta, requires_grad=True)
            parts = flat.split([shape.numel() for shape in shapes])
            W1, b1, W2, b2 = (part.view(shape) for part, shape in zip(parts, shapes, strict=True))
            scores = torch.tanh(x @ W1.T + b1) @ W2.T + b2
            chosen = scores.log_softmax(dim=1)[torch.arange(len(y)), y]
            rows.append(torch.autograd.grad(-chosen.mean(), flat)[0].numpy())
        return np.stack(rows)

    return gradients


@pytest.mark.parametrize(("alpha", "beta", "b_min"), [(0.05, 0.25, 1), (0.1, 0.1, 2)])
def test_network_follows_algorithm_1_round_by_round(alpha, beta, b_min):
    module, shards = network_and_data()
    problem = aquila.problem(module, shards)
    method = aquila.create("aquila", alpha=alpha, beta=beta, b_min=b_min)
    simulation = aquila.Simulation(method, problem.theta0, problem.devices)
    gradients = network_gradients(module, shards)
    reference = Algorithm1(gradients, problem.theta0.numpy(), alpha, beta, b_min)
    require_variety(run_and_compare(simulation, reference, rounds=60))


# why the lowest level matters


@pytest.fixture(scope="module")
def ridge():
    return Ridge()


def gap_after(ridge, relative_step, rounds=150, **parameters):
    method = aquila.create("aquila", alpha=relative_step / ridge.L, **parameters)
    run = aquila.simulate(method, ridge.theta0, ridge.devices, rounds)
    return ridge.gap(run.theta)


@pytest.mark.parametrize("relative_step", [1.0, 0.5])
@pytest.mark.parametrize("beta", [0.25, 0.0])
def test_level_one_diverges_with_and_without_skips(ridge, relative_step, beta):
    gap = gap_after(ridge, relative_step, rounds=80, beta=beta, b_min=1)
    assert gap > 10 * ridge.gap(ridge.theta0)


@pytest.mark.parametrize("relative_step", [1.0, 0.5])
@pytest.mark.parametrize("parameters", [{"b_min": 2}, {"level_rule": "tight"}])
def test_more_levels_converge_like_gradient_descent(ridge, relative_step, parameters):
    plain = ridge.gap(ridge.descent(relative_step / ridge.L, rounds=150))
    assert plain < 1e-5 * ridge.gap(ridge.theta0)
    assert gap_after(ridge, relative_step, beta=0.25, **parameters) < 3 * plain


def test_very_different_devices_slow_two_bits_down_with_and_without_skips():
    """With 20 samples per device, a device is 5.4 times less smooth than the average."""
    ridge = Ridge(n=20)
    start, plain = ridge.gap(ridge.theta0), ridge.gap(ridge.descent(0.5 / ridge.L, rounds=150))
    assert plain / start == pytest.approx(3.9e-7, rel=0.1)
    for beta in (0.25, 0.0):
        gap = gap_after(ridge, 0.5, beta=beta, b_min=2)
        assert gap / start == pytest.approx(5.6e-5, rel=0.2)


def relative_errors(draw, uploads, **parameters):
    """Upload one constant gradient repeatedly; return ||g - q|| / ||g|| after each upload."""
    g = torch.from_numpy(draw)
    method = aquila.create("aquila", beta=0.0, **parameters)
    simulation = aquila.Simulation(method, torch.zeros_like(g), [lambda theta: (0.0, g)])
    errors = []
    for _ in range(uploads):
        assert simulation.advance().uploads == 1
        errors.append(np.linalg.norm(memories(simulation)[0] - draw) / np.linalg.norm(draw))
    return np.array(errors)


DRAWS = {
    "Gaussian": lambda rng: rng.standard_normal(10_000),
    "Laplace": lambda rng: rng.laplace(size=10_000),
    "t3": lambda rng: rng.standard_t(3, size=10_000),
}


@pytest.mark.parametrize("name", DRAWS)
def test_constant_gradient_is_never_learnt_at_level_one(name):
    errors = relative_errors(DRAWS[name](np.random.default_rng(0)), uploads=200, b_min=1)
    assert errors.min() > 0.5
    assert errors[-2:] == pytest.approx(errors[-4:-2])  # an endless cycle of two uploads


@pytest.mark.parametrize("name", DRAWS)
def test_error_of_a_constant_gradient_shrinks_threefold_per_upload_from_two_bits(name):
    errors = relative_errors(DRAWS[name](np.random.default_rng(0)), uploads=15, b_min=2)
    shrinking = errors[:-1] / errors[1:]
    assert shrinking[5:] == pytest.approx(3, rel=0.1)


# skips


def test_device_with_an_exact_memory_sends_only_skip_frames():
    """One bit per coordinate represents a gradient of equal magnitudes exactly."""
    flat = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64)
    method = aquila.create("aquila", alpha=0.1, beta=0.0)
    simulation = aquila.Simulation(method, torch.zeros_like(flat), [lambda theta: (0.0, flat)])
    assert simulation.advance().levels == {0: 1}
    record = simulation.advance()
    assert (record.uploads, record.skips, record.paper_bits) == (0, 1, 0)
    assert record.uplink == {0: SKIP_FRAME}


def test_zero_gradient_is_never_sent():
    zero = torch.zeros(4, dtype=torch.float64)
    devices = [lambda theta: (0.0, zero), lambda theta: (0.0, zero + 1)]
    run = aquila.simulate(aquila.create("aquila"), zero, devices, rounds=3)
    assert run.records[0].levels == {1: 1}
    assert all(record.uplink[0] == SKIP_FRAME for record in run.records)


def test_first_round_uploads_even_if_the_squared_gradient_underflows():
    tiny = torch.full((4,), 1e-170, dtype=torch.float64)
    run = aquila.simulate(aquila.create("aquila"), 0 * tiny, [lambda theta: (0.0, tiny)], rounds=1)
    assert run.records[0].uploads == 1


def test_model_moves_while_all_devices_skip_and_uploads_resume():
    ridge, alpha = Ridge(d=40), 0.1
    method = aquila.create("aquila", alpha=alpha, beta=1.0, b_min=2)
    simulation = aquila.Simulation(method, ridge.theta0, ridge.devices)
    silent = []
    for _ in range(40):
        theta, q_bar = simulation.theta.numpy(), memories(simulation).mean(axis=0)
        silent.append(simulation.advance().skips == 10)
        if silent[-1]:
            assert np.abs(q_bar).max() > 0
            np.testing.assert_allclose(simulation.theta, theta - alpha * q_bar, rtol=1e-12)
    first = silent.index(True)
    assert not all(silent[first:])


# lost replies


def test_optimum_is_reached_with_a_quarter_of_the_replies_lost():
    ridge = Ridge(d=40, low=0.3)
    method = aquila.create("aquila", alpha=0.5 / ridge.L, beta=0.1, b_min=2)
    simulation = aquila.Simulation(
        method, ridge.theta0, ridge.devices, options=aquila.RunOptions(uplink_loss=0.25)
    )
    lost = uploads = skips = 0
    for _ in range(200):
        record = simulation.advance()
        lost, uploads, skips = lost + record.lost, uploads + record.uploads, skips + record.skips
        q_bar = simulation.server.state.q_bar.numpy()
        np.testing.assert_allclose(q_bar, memories(simulation).mean(axis=0), atol=1e-12)
    assert lost == pytest.approx(0.25 * 2000, rel=0.1)
    assert uploads > 100
    assert skips > 100
    assert ridge.gap(simulation.theta) < 1e-12 * ridge.gap(ridge.theta0)
