import weakref

import pytest
import torch
from torch import nn

import aquila
from aquila.core.random import Key
from aquila.training.flat_module import MAX_PASS_TARGETS, FlatModule


def data(samples: int = 30, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(samples, 5, generator=generator),
        torch.randint(0, 3, (samples,), generator=generator),
    )


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def reference(module: nn.Module, x, y) -> tuple[float, torch.Tensor]:
    loss = nn.functional.cross_entropy(module(x), y)
    gradients = torch.autograd.grad(loss, list(module.parameters()))
    return loss.item(), torch.cat([g.reshape(-1) for g in gradients])


def test_gradient_equals_autograd():
    module, (x, y) = network(), data()
    problem = aquila.problem(module, [(x, y)])
    loss, gradient = problem.devices[0].oracle(Key((0,))).gradient(problem.theta0)
    expected_loss, expected = reference(module, x, y)
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    torch.testing.assert_close(gradient, expected)


def test_large_batches_are_split_without_changing_the_gradient():
    module, (x, y) = network(), data(2 * MAX_PASS_TARGETS + 100)
    problem = aquila.problem(module, [(x, y)])
    loss, gradient = problem.devices[0].oracle(Key((0,))).gradient(problem.theta0)
    expected_loss, expected = reference(module, x, y)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)


def test_module_of_the_user_is_not_changed():
    module, batch = network(), data()
    before = [p.clone() for p in module.parameters()]
    problem = aquila.problem(module, [batch])
    aquila.simulate(aquila.create("fedsgd"), problem.theta0, problem.devices, rounds=3)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert all(p.grad is None for p in module.parameters())


def test_minibatches_depend_only_on_the_key():
    problem = aquila.problem(network(), [data()], batch_size=4)
    shard = problem.devices[0]
    once = shard.oracle(Key((1,))).gradient(problem.theta0)[1]
    other = shard.oracle(Key((2,))).gradient(problem.theta0)[1]
    again = shard.oracle(Key((1,))).gradient(problem.theta0)[1]
    assert torch.equal(once, again)
    assert not torch.equal(once, other)


def test_minibatch_is_the_same_within_a_round():
    problem = aquila.problem(network(), [data()], batch_size=4)
    oracle = problem.devices[0].oracle(Key((1,)))
    assert torch.equal(oracle.gradient(problem.theta0)[1], oracle.gradient(problem.theta0)[1])


def test_local_epochs_are_sgd():
    module, (x, y) = network(), data(12)
    problem = aquila.problem(module, [(x, y)], batch_size=4, epochs=2)
    oracle, alpha = problem.devices[0].oracle(Key((3,))), 0.1
    loss, update = oracle.train(problem.theta0, alpha)
    optimizer = torch.optim.SGD(module.parameters(), lr=alpha)
    losses = []
    for epoch in range(2):
        for batch_x, batch_y in oracle.batches(epoch):
            optimizer.zero_grad()
            value = nn.functional.cross_entropy(module(batch_x), batch_y)
            value.backward()
            optimizer.step()
            losses.append(value.item())
    trained = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    torch.testing.assert_close(problem.theta0 - alpha * update, trained, rtol=1e-4, atol=1e-6)
    assert loss == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert len(losses) == 6


def test_an_epoch_sees_every_sample_once():
    x = torch.arange(10.0)[:, None]
    problem = aquila.problem(nn.Linear(1, 2), [(x, torch.zeros(10).long())], batch_size=3)
    batches = list(problem.devices[0].oracle(Key((0,))).batches(0))
    assert sorted(torch.cat([b[0] for b in batches]).flatten().tolist()) == list(range(10))


def test_dropout_depends_on_the_key_and_restores_the_global_generator():
    module = nn.Sequential(nn.Linear(5, 50), nn.Dropout(0.5), nn.Linear(50, 3))
    problem = aquila.problem(module, [data()])
    torch.manual_seed(9)
    expected = torch.rand(1)
    torch.manual_seed(9)
    gradients = [
        problem.devices[0].oracle(Key((k,))).gradient(problem.theta0)[1] for k in (1, 1, 2)
    ]
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(gradients[0], gradients[1])
    assert not torch.equal(gradients[0], gradients[2])


def test_accuracy_and_loss_of_a_model():
    module, (x, y) = network(), data()
    problem = aquila.problem(module, [(x, y)], test=(x, y))
    metrics = problem.evaluate(problem.theta0)
    outputs = module(x)
    assert metrics["test_accuracy"] == pytest.approx(float((outputs.argmax(1) == y).float().mean()))
    assert metrics["test_loss"] == pytest.approx(
        nn.functional.cross_entropy(outputs, y).item(), rel=1e-5
    )


def test_regression_has_no_accuracy():
    x = torch.randn(6, 5)
    problem = aquila.problem(
        nn.Linear(5, 1), [(x, x[:, :1])], test=(x, x[:, :1]), loss=nn.functional.mse_loss
    )
    assert set(problem.evaluate(problem.theta0)) == {"test_loss"}


def test_running_statistics_of_other_layers_are_an_error():
    module = nn.Sequential(nn.Linear(5, 4), nn.InstanceNorm1d(4, track_running_stats=True))
    with pytest.raises(ValueError, match=r"1 is of type InstanceNorm1d.*track_running_stats=False"):
        aquila.problem(module, [data()])


@pytest.mark.parametrize("shards", [data(), [data()[0].numpy()], [(*data(), data()[0])], ["ab"]])
def test_shards_must_be_pairs_of_tensors(shards):
    with pytest.raises(ValueError, match="shard 0 must be a pair of tensors"):
        aquila.problem(network(), shards)


def test_shards_of_unequal_length_are_errors():
    x, y = data()
    with pytest.raises(ValueError, match="shard 1 has 30 inputs and 29 targets"):
        aquila.problem(network(), [(x, y), (x, y[:-1])])
    with pytest.raises(ValueError, match="shard 0 has 0 inputs"):
        aquila.problem(network(), [(x[:0], y[:0])])


def test_batches_are_not_split_with_batch_norm():
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Linear(5, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3)
    )
    x, y = data(MAX_PASS_TARGETS + 300)
    problem = aquila.problem(module, [(x, y)])
    gradient = problem.devices[0].oracle(Key((0,))).gradient(problem.theta0)[1]
    torch.testing.assert_close(gradient, reference(module, x, y)[1], rtol=1e-3, atol=1e-6)


def test_probe_keeps_no_tensors_alive():
    module, made = network(), []
    module[1].register_forward_hook(lambda part, given, out: made.append(weakref.ref(out)))
    FlatModule(module, nn.functional.cross_entropy).probe(data()[0])
    assert [output() for output in made] == [None]


class Slope(nn.Module):
    """Returns the derivative of its own output."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 3)

    def forward(self, x):
        with torch.enable_grad():
            x = x.clone().requires_grad_()
            y = self.inner(x).tanh()
            (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y + slope.sum(1, keepdim=True)


def test_module_may_use_autograd_in_forward():
    problem = aquila.problem(Slope(), [data()])
    loss, gradient = problem.devices[0].oracle(Key((0, 0, 0))).gradient(problem.theta0)
    assert gradient.norm() > 0
    assert loss > 0


def test_gpu_index_is_an_error():
    with pytest.raises(ValueError, match="choose a GPU by CUDA_VISIBLE_DEVICES"):
        aquila.ProblemOptions(device="cuda:1")


def test_invalid_problems_are_errors():
    x, y = data()
    for wrong, problem in (
        ({"batch_size": 0}, "must be a whole number >= 1, not 0"),
        ({"epochs": 0}, "epochs must be a whole number >= 1"),
    ):
        with pytest.raises(ValueError, match=problem):
            aquila.problem(network(), [(x, y)], **wrong)
    with pytest.raises(ValueError, match="precision must be one of float32, tf32, bf16"):
        aquila.ProblemOptions(precision="fp8")
    with pytest.raises(ValueError, match="at least one shard"):
        aquila.problem(network(), [])
    with pytest.raises(TypeError, match=r"shards must be a list of pairs of tensors.*not Tensor"):
        aquila.problem(network(), x)
    with pytest.raises(TypeError, match="module is the class Linear; pass an instance"):
        aquila.problem(nn.Linear, [(x, y)])
    with pytest.raises(ValueError, match=r"shard 0 has target 3, but .* the classes 0 to 2"):
        aquila.problem(network(), [(x, torch.full_like(y, 3))])
    with pytest.raises(ValueError, match="no parameters to train"):
        aquila.problem(nn.ReLU(), [(x, y)])


def test_missing_fleet_is_an_error():
    narrow = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    made = aquila.problem(
        network(), [data(), data()], options=aquila.ProblemOptions(narrower=[narrow], groups=[0, 1])
    )
    with pytest.raises(ValueError, match=r"device 1 trains 39 coordinates.*fleet=problem"):
        aquila.simulate(aquila.create("fedsgd"), made.theta0, made.devices)
