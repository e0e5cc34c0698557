import math

import pytest
import torch
from torch import nn

import aquila
from aquila.tasks import build_model
from aquila.tasks.models import with_batch_norm_statistics
from aquila.tasks.transformer import token_loss


def images(samples: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(samples) % 4
    return torch.randn(samples, 3, 8, 8, generator=generator) + y[:, None, None, None], y


def network(width: float = 1.0) -> nn.Module:
    torch.manual_seed(3)
    return build_model(
        "cnn", width, channels=3, size=8, classes=4, filters=4, hidden=12, norm="static"
    )


def shards(x, y):
    """Return two shards: classes 0 and 1, and classes 2 and 3."""
    return [(x[y < 2], y[y < 2]), (x[y >= 2], y[y >= 2])]


def test_batch_norms_are_evaluated_with_statistics_of_the_training_inputs():
    x, y = images(48)
    test_x, test_y = images(20, seed=1)
    module = network()
    problem = aquila.problem(module, shards(x, y), test=(test_x, test_y))
    metrics = problem.evaluate(problem.theta0)
    inputs = torch.cat([part for part, _ in shards(x, y)])
    outputs = with_batch_norm_statistics(module, [inputs])(test_x)
    assert metrics["test_loss"] == pytest.approx(
        nn.functional.cross_entropy(outputs, test_y).item(), rel=1e-5
    )
    assert metrics["test_accuracy"] == (outputs.argmax(1) == test_y).double().mean().item()


def test_local_accuracy_averages_over_each_devices_classes():
    x, y = images(48)
    test_x, test_y = images(40, seed=1)
    module = network()
    problem = aquila.problem(
        module, shards(x, y), test=(test_x, test_y), options=aquila.ProblemOptions(classes=4)
    )
    metrics = problem.evaluate(problem.theta0)
    outputs = with_batch_norm_statistics(module, [torch.cat([part for part, _ in shards(x, y)])])(
        test_x
    )
    accuracies = []
    for own in ([0, 1], [2, 3]):
        masked = torch.zeros_like(outputs)
        masked[:, own] = outputs[:, own]
        mine = torch.isin(test_y, torch.tensor(own))
        accuracies.append((masked.argmax(1) == test_y)[mine].double().mean().item())
    assert metrics["local_accuracy"] == pytest.approx(sum(accuracies) / 2)
    assert metrics["local_accuracy"] != metrics["test_accuracy"]


def test_masked_training_does_not_change_other_classes():
    x, y = images(24)
    problem = aquila.problem(
        nn.Sequential(nn.Flatten(), nn.Linear(192, 4)),
        shards(x, y),
        options=aquila.ProblemOptions(classes=4),
    )
    run = aquila.Simulation(aquila.create("fedsgd"), problem.theta0, problem.devices)
    run.devices[0].handle(run.server.open_round()[0])
    gradient = run.devices[0]._pending.reply.vector.decode()
    weights, biases = gradient[: 4 * 192].view(4, 192), gradient[4 * 192 :]
    assert weights[:2].any()
    assert not weights[2:].any()
    assert not biases[2:].any()


def test_last_minibatch_accuracy_is_that_of_the_last_step():
    x, y = images(10)
    module = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    problem = aquila.problem(module, [(x, y)], test=(x, y), batch_size=4)
    method = aquila.create("fedavg", alpha=0.01)
    run = aquila.simulate(
        method, problem.theta0, problem.devices, rounds=1, evaluate=problem.evaluate
    )
    # ten samples in batches of four: the last batch has two, so the accuracy is a multiple of 1/2
    assert run.records[0].metrics["last_minibatch_train_accuracy"] in (0.0, 0.5, 1.0)


def test_texts_have_a_perplexity():
    rows = torch.randint(0, 50, (6, 16), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    module = build_model("transformer_small", vocabulary=50, length=16)
    problem = aquila.problem(module, [(rows, rows)], test=(rows, rows), loss=token_loss)
    metrics = problem.evaluate(problem.theta0)
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["test_loss"]))
    assert 10 < metrics["perplexity"] < 200


def test_classes_of_pixels_have_no_perplexity():
    x, y = torch.randn(6, 3, 4, 4), torch.randint(2, (6, 4, 4))
    made = aquila.problem(nn.Conv2d(3, 2, 1), [(x, y)], test=(x, y))
    assert set(made.evaluate(made.theta0)) == {"test_loss", "test_accuracy"}


def test_any_number_of_training_samples_gives_statistics():
    x, y = torch.randn(501, 6), torch.zeros(501).long()
    module = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, track_running_stats=False))
    problem = aquila.problem(module, [(x, y)], test=(x[:5], y[:5]))
    assert "test_loss" in problem.evaluate(problem.theta0)


def test_last_minibatch_accuracy_is_that_of_the_latest_run():
    x, y = images(48)
    narrow = network(0.5)
    problem = aquila.problem(
        network(),
        shards(x, y),
        test=(x, y),
        options=aquila.ProblemOptions(narrower=[narrow], groups=[0, 1]),
    )  # each width has its own model, which shows who trained last
    rounds = {}
    for alpha, count in ((0.5, 5), (0.0001, 1)):
        method = aquila.create("fedsgd", alpha=alpha)
        run = aquila.simulate(
            method,
            problem.theta0,
            problem.devices,
            rounds=count,
            evaluate=problem.evaluate,
            options=aquila.RunOptions(fleet=problem.fleet),
        )
        rounds[alpha] = run.records[-1].metrics["last_minibatch_train_accuracy"]
    assert rounds[0.5] != rounds[0.0001]


def test_widths_share_the_accuracy_of_the_last_minibatch():
    x, y = images(24)
    problem = aquila.problem(
        network(),
        shards(x, y),
        test=(x, y),
        options=aquila.ProblemOptions(narrower=[network(0.5)], groups=[0, 1]),
    )
    run = aquila.Simulation(
        aquila.create("fedsgd"),
        problem.theta0,
        problem.devices,
        options=aquila.RunOptions(fleet=problem.fleet),
    )
    record = run.advance(problem.evaluate)
    narrow = problem.devices[1].models.for_this_thread
    narrow.load(problem.fleet.restrict(problem.theta0)[1])
    right = (narrow.outputs(shards(x, y)[1][0]).argmax(1) == shards(x, y)[1][1]).float().mean()
    assert record.metrics["last_minibatch_train_accuracy"] == pytest.approx(float(right))


def two_width_problem() -> aquila.Problem:
    """Return a problem whose two devices train different models, which show who trained last."""
    x, y = images(24)
    options = aquila.ProblemOptions(narrower=[network(0.5)], groups=[0, 1])
    return aquila.problem(network(), shards(x, y), test=(x, y), options=options)


def train_rounds(problem: aquila.Problem, rounds: int, evaluate=None, **options) -> aquila.Run:
    given = aquila.RunOptions(fleet=problem.fleet, **options)
    return aquila.simulate(
        aquila.create("fedsgd", alpha=0.5), problem.theta0, problem.devices, rounds, seed=1,
        evaluate=evaluate, options=given,
    )  # fmt: skip


def test_last_minibatch_accuracy_needs_a_training_device():
    problem = two_width_problem()
    assert "last_minibatch_train_accuracy" not in problem.evaluate(problem.theta0)
    run = train_rounds(problem, 2, problem.evaluate)
    assert all("last_minibatch_train_accuracy" in record.metrics for record in run.records)
    assert "last_minibatch_train_accuracy" not in problem.evaluate(run.theta)
    lost = train_rounds(problem, 2, problem.evaluate, downlink_loss=1.0)
    assert not any("last_minibatch_train_accuracy" in record.metrics for record in lost.records)


def test_last_minibatch_accuracy_is_not_that_of_a_run_without_evaluation():
    expected = train_rounds(
        fresh := two_width_problem(), 1, fresh.evaluate, participation=0.5
    ).records[0]
    assert set(expected.uplink) == {0}
    used = two_width_problem()
    train_rounds(used, 1)  # ends with device 1
    record = train_rounds(used, 1, used.evaluate, participation=0.5).records[0]
    assert record.metrics == expected.metrics
    both = train_rounds(used, 1, used.evaluate).records[0].metrics
    assert both["last_minibatch_train_accuracy"] != record.metrics["last_minibatch_train_accuracy"]


def test_last_minibatch_accuracy_needs_classes_as_training_targets():
    x, y = images(24)
    module = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    soft = nn.functional.one_hot(y, 4).float()
    problem = aquila.problem(module, [(x, soft)], test=(x, y), loss=nn.CrossEntropyLoss())
    run = aquila.simulate(
        aquila.create("fedsgd"), problem.theta0, problem.devices, 1, evaluate=problem.evaluate
    )
    assert "test_accuracy" in run.records[0].metrics
    assert "last_minibatch_train_accuracy" not in run.records[0].metrics
