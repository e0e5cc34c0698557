"""PowerSGD against a numpy version of its rule, and uploads shorter than the model."""

import numpy as np
import pytest
import torch

import aquila
from aquila.core.packet import Codes, Dense, Packet, WireError
from aquila.core.random import Key, Purpose
from aquila.methods.powersgd import FactorReader, Factors, orthonormalize, sent_size
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.norm_limit import NormLimit
from aquila.runtime.persist import device_to_bytes, restore_device
from aquila.runtime.server_session import ServerSession
from aquila.sim.oracle import as_shard
from helpers.layered import FixedGradient, layered_run
from helpers.problems import device_states

SHAPES = [(6, 2, 4), (5,), (2, 2)]
"""A matrix of 6 rows and 8 columns, a vector, and a matrix without shorter factors of rank 2."""
DIMENSION, SENT = 48 + 5 + 4, 2 * (6 + 8) + 5 + 4


def gradients(devices=1, seed=0):
    return np.random.default_rng(seed).standard_normal((devices, DIMENSION))


def devices_of(vectors):
    return [FixedGradient(torch.from_numpy(v), SHAPES) for v in vectors]


def create(**parameters):
    return aquila.create("powersgd", **{"alpha": 1.0, "rank": 2, **parameters})


class Reference:
    """One device in numpy, with an orthonormal basis from QR and the error of all rounds."""

    def __init__(self, gradient, start):
        self.gradient, self.q = gradient, start
        self.e = np.zeros(DIMENSION)

    def advance(self):
        total = self.e + self.gradient
        matrix = total[:48].reshape(6, 8)
        p, _ = np.linalg.qr(matrix @ self.q)
        self.q = matrix.T @ p
        sent = np.concatenate([(p @ self.q.T).reshape(-1), total[48:]])
        self.e = total - sent
        return sent


def test_run_follows_the_rule_round_by_round():
    vectors = gradients(devices=3)
    run, theta = layered_run(create(alpha=0.5), devices_of(vectors)), np.zeros(DIMENSION)
    starts = [
        Key((0, 0, m, Purpose.DEVICE)).child(0).numpy().standard_normal((8, 2)) for m in range(3)
    ]
    references = [Reference(*pair) for pair in zip(vectors, starts, strict=True)]
    for _ in range(4):
        run.advance()
        theta = theta - 0.5 * np.mean([one.advance() for one in references], axis=0)
        np.testing.assert_allclose(run.theta, theta, rtol=1e-9, atol=1e-10)
        for state, one in zip(device_states(run), references, strict=True):
            np.testing.assert_allclose(state.e, one.e, rtol=1e-8, atol=1e-9)
    assert any(one.e.any() for one in references)


def test_upload_has_the_floats_of_the_factors():
    run = layered_run(create(), devices_of(gradients()))
    record = run.advance()
    assert record.paper_bits == 64 * SENT
    assert record.uplink_bytes == record.uplink_header_bytes + 8 * SENT
    sizes = [sent_size(torch.Size(shape), 2) for shape in SHAPES]
    assert sizes == [28, 5, 4]


def test_matrix_of_low_rank_is_sent_exactly():
    left, right = np.random.default_rng(1).standard_normal((2, 6, 2))
    matrix = np.concatenate([(left @ right.T).reshape(-1), left[:2, 0], right[:, 1]])
    device = FixedGradient(torch.from_numpy(matrix), [(6, 6), (8,)])
    run = layered_run(create(), [device])
    assert run.advance().error_ratio < 1e-12
    np.testing.assert_allclose(run.theta, -matrix, atol=1e-12)


def test_warm_start_finds_the_largest_singular_vectors():
    """Power iteration converges to the best approximation of rank 2 for a fixed matrix."""
    gradient = gradients(seed=3)
    device, state = create().device, create().device.init(torch.zeros(DIMENSION).double())
    oracle, errors = devices_of(gradient)[0], []
    for k in range(40):
        order = Packet(k, Dense(torch.zeros(DIMENSION).double()))
        turn = device.step(state, order, oracle, Key((k,)))
        errors.append(turn.notes["error_ratio"])
        state = type(state)(torch.zeros_like(state.e), turn.state.q)  # without error feedback
    singular = np.linalg.svd(gradient[0, :48].reshape(6, 8))[1]
    best = np.sqrt(np.sum(singular[2:] ** 2) / np.sum(gradient**2))
    assert errors[0] > best * 1.05
    assert errors[-1] == pytest.approx(best, rel=1e-4)


def test_sum_of_the_uploads_follows_the_sum_of_the_gradients():
    run = layered_run(create(), devices_of(gradients()))
    for _ in range(200):
        run.advance()
    np.testing.assert_allclose(run.theta / -200, gradients()[0], atol=0.15)


def test_columns_are_orthonormal_and_zero_stays_zero():
    columns = torch.randn(9, 3, generator=torch.Generator().manual_seed(0)) * 1e25
    basis = orthonormalize(columns)
    torch.testing.assert_close(basis.T @ basis, torch.eye(3))
    assert not orthonormalize(torch.zeros(4, 2)).any()


def test_memory_of_lost_replies_is_rolled_back():
    run = layered_run(create(), devices_of(gradients(devices=4)), uplink_loss=0.4)
    assert sum(run.advance().lost for _ in range(10)) > 5
    assert torch.isfinite(run.theta).all()


def session(method, theta):
    shard = as_shard(devices_of(gradients())[0])
    return DeviceSession(method, 0, shard, theta, seed=0)


def test_saved_device_keeps_a_reply_of_another_length_than_the_model():
    method, theta = create(), torch.zeros(DIMENSION)
    fleet = aquila.Fleet(DIMENSION, [0], shapes=[list(map(torch.Size, SHAPES))])
    server, device = ServerSession(method, theta, fleet, seed=0), session(method, theta)
    order = server.open_round()[0]
    frame = device.handle(order)
    restored = session(method, theta)
    restore_device(restored, device_to_bytes(device))
    assert restored.handle(order) == frame
    server.receive(0, frame)


def test_norm_limit_applies_to_the_vector_of_the_model():
    method, theta = create(), torch.zeros(DIMENSION)
    fleet = aquila.Fleet(DIMENSION, [0], shapes=[list(map(torch.Size, SHAPES))])
    server = ServerSession(method, theta, fleet, seed=0, limit=NormLimit(1.0, "clip"))
    server.receive(0, session(method, theta).handle(server.open_round()[0]))
    server.close_round()
    assert float(server.theta.norm()) == pytest.approx(1.0, rel=1e-5)


def test_server_without_the_tensors_of_the_model_says_what_to_pass():
    with pytest.raises(
        WireError,
        match=r"device 0 and the server have different tensors: frame "
        r"holds 37 coordinates where 57 .*; pass RunOptions\(fleet=problem.fleet",
    ):
        aquila.simulate(create(), torch.zeros(DIMENSION), devices_of(gradients()), rounds=1)


def test_invalid_factors_are_refused():
    shapes = tuple(map(torch.Size, SHAPES))
    codes = Codes(torch.zeros(SENT).byte(), 2, torch.zeros(1), torch.ones(1), SENT)
    with pytest.raises(WireError, match="must hold floats"):
        FactorReader(2).read(Packet(0, codes), shapes)
    with pytest.raises(WireError, match="product of factors is not finite"):
        FactorReader(2).read(Packet(0, Dense(torch.full((SENT,), 1e30))), shapes)
    assert Factors(torch.ones(SENT), 2, shapes).decode()[:48].tolist() == [2.0] * 48
