"""Results of devices are checked and copied before a method sees them."""

import pytest
import torch

import aquila


def test_model_that_is_not_finite_stops_the_run():
    steep = [lambda theta: (1.0, torch.full_like(theta, 1e37))]
    with pytest.raises(aquila.NonFiniteError, match="not finite after round 0"):
        aquila.simulate(aquila.create("fedsgd", alpha=1e3), torch.zeros(3), steep, rounds=2)


def test_gradient_of_the_wrong_shape_is_reported():
    wrong = [lambda theta: (1.0, torch.zeros(5))]
    with pytest.raises(TypeError, match=r"device 0, round 0: the gradient is \(5,\)"):
        aquila.simulate(aquila.create("fedsgd"), torch.zeros(3), wrong, rounds=1)


def test_functions_that_write_to_their_argument_do_no_harm():
    def careless(theta):
        theta.requires_grad_()
        loss = (theta - 1).square().sum()
        loss.backward()
        theta.data.zero_()
        return loss.item(), theta.grad

    def careful(theta):
        return float((theta - 1).square().sum()), 2 * (theta - 1)

    runs = [
        aquila.simulate(aquila.create("fedsgd"), torch.zeros(3), [f] * 4, rounds=5).theta
        for f in (careless, careful)
    ]
    assert torch.equal(*runs)


def test_functions_that_return_the_same_buffer_do_no_harm():
    buffer = torch.zeros(3)

    def reusing(theta):
        buffer.copy_(2 * (theta - 1))
        return 1.0, buffer

    method = aquila.create("marina", alpha=0.1, p=0.0, bits=31)
    run = aquila.simulate(method, torch.zeros(3), [reusing] * 2, rounds=60)
    torch.testing.assert_close(run.theta, torch.ones(3), rtol=1e-3, atol=1e-3)


def test_evaluation_that_writes_to_the_model_does_no_harm():
    device = [lambda theta: (1.0, theta - 1)]
    run = aquila.simulate(
        aquila.create("fedsgd", alpha=0.5), torch.zeros(3), device, rounds=30,
        evaluate=lambda theta: {"zero": float(theta.zero_().sum())},
    )  # fmt: skip
    torch.testing.assert_close(run.theta, torch.ones(3))


@pytest.mark.parametrize("name", ["aquila", "lag", "laq", "lena"])
def test_diverging_float64_runs_raise(name):
    steep = [lambda theta: (1.0, -theta * 1e6 - 1)]
    with pytest.raises(aquila.NonFiniteError):
        aquila.simulate(
            aquila.create(name, alpha=1.0), torch.zeros(3, dtype=torch.float64), steep, rounds=80
        )
