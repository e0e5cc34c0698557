"""Local training equals `torch.optim` on the same minibatches; plain SGD keeps its bits."""

import copy
import re
import subprocess
import sys
from functools import partial

import pytest
import torch
from torch import nn

import aquila
from aquila.core.random import Key
from aquila.training.flat_module import FlatModule
from aquila.training.local_training import LocalTraining, training_parameters

KEY = Key((3, 1, 0))
ALPHA = 0.05

RECIPES = {
    "plain": (LocalTraining(), partial(torch.optim.SGD)),
    "weight_decay": (
        LocalTraining(weight_decay=0.01),
        partial(torch.optim.SGD, weight_decay=0.01),
    ),
    "momentum": (LocalTraining(momentum=0.9), partial(torch.optim.SGD, momentum=0.9)),
    "nesterov": (
        LocalTraining(momentum=0.9, nesterov=True, weight_decay=0.01),
        partial(torch.optim.SGD, momentum=0.9, nesterov=True, weight_decay=0.01),
    ),
    "adam": (LocalTraining(local_optimizer="adam"), torch.optim.Adam),
    "adam_l2": (
        LocalTraining(local_optimizer="adam", weight_decay=0.1),
        partial(torch.optim.Adam, weight_decay=0.1),
    ),
    "adamw": (
        LocalTraining(local_optimizer="adamw", weight_decay=0.1),
        partial(torch.optim.AdamW, weight_decay=0.1),
    ),
    "factory": (LocalTraining(local_optimizer=torch.optim.RMSprop), torch.optim.RMSprop),
}


def network(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)


def data(samples: int = 20, dtype: torch.dtype = torch.float64):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(samples, 6, generator=generator).to(dtype)
    return x, torch.randint(0, 3, (samples,), generator=generator)


def problem_of(training: LocalTraining, dtype=torch.float64, **options: object) -> aquila.Problem:
    given = {"batch_size": 6, "epochs": 3, **options}
    return aquila.problem(network(dtype), [data(dtype=dtype)], training=training, **given)


def trained(made: aquila.Problem, alpha: float = ALPHA) -> torch.Tensor:
    """Return the local model after a turn of the first device."""
    update = made.devices[0].oracle(KEY).train(made.theta0, alpha)[1]
    return made.theta0 - alpha * update


def minibatches(made: aquila.Problem, epochs: int = 3):
    oracle = made.devices[0].oracle(KEY)
    return [batch for epoch in range(epochs) for batch in oracle.batches(epoch)]


def flat(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def reference(made, optimizer, clip=0.0, prox=0.0, batches=None) -> torch.Tensor:
    """Train with torch alone, on the same minibatches."""
    module = network(made.theta0.dtype)
    start = copy.deepcopy(module)
    steps = optimizer(module.parameters(), lr=ALPHA)
    for x, y in minibatches(made) if batches is None else batches:
        steps.zero_grad()
        loss = nn.functional.cross_entropy(module(x), y)
        pairs = zip(module.parameters(), start.parameters(), strict=True)
        loss = loss + prox / 2 * sum((p - q.detach()).square().sum() for p, q in pairs)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        steps.step()
    return flat(module)


@pytest.mark.parametrize("clip", [0.0, 0.2])
@pytest.mark.parametrize("recipe", RECIPES)
def test_optimizers_equal_torch(recipe, clip):
    training, optimizer = RECIPES[recipe]
    training = LocalTraining(**{**vars(training), "clip": clip})
    made = problem_of(training)
    expected = reference(made, optimizer, clip)
    torch.testing.assert_close(trained(made), expected, rtol=1e-11, atol=1e-12)
    # the optimizer starts without state in every turn
    torch.testing.assert_close(trained(made), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("recipe", ["momentum", "adamw"])
def test_optimizers_equal_torch_in_float32(recipe):
    training, optimizer = RECIPES[recipe]
    made = problem_of(training, torch.float32)
    torch.testing.assert_close(trained(made), reference(made, optimizer), rtol=2e-5, atol=2e-6)


def test_recipes_differ():
    models = [trained(problem_of(training)) for training, _ in RECIPES.values()]
    for number, one in enumerate(models):
        assert all((one - other).norm() > 1e-4 for other in models[:number])


@pytest.mark.parametrize("clip", [0.0, 0.2])
def test_proximal_term_equals_that_of_the_loss(clip):
    made = problem_of(LocalTraining(prox=2.0, momentum=0.5, clip=clip))
    expected = reference(made, partial(torch.optim.SGD, momentum=0.5), clip, prox=2.0)
    torch.testing.assert_close(trained(made), expected, rtol=1e-11, atol=1e-12)


def test_plain_training_keeps_its_bits():
    made = problem_of(LocalTraining(), torch.float32)
    model = FlatModule(network(torch.float32), nn.functional.cross_entropy)
    for x, y in minibatches(made):
        model.grad.zero_()
        nn.functional.cross_entropy(model.module(x), y).backward()
        with torch.no_grad():
            model.theta -= torch.tensor(ALPHA) * model.grad
    update = made.devices[0].oracle(KEY).train(made.theta0, ALPHA)[1]
    assert torch.equal(update, (made.theta0 - model.theta) / ALPHA)


@pytest.mark.parametrize("steps", [1, 4, 6, 15])
def test_local_steps_continue_over_epochs(steps):
    made = problem_of(LocalTraining(local_steps=steps, momentum=0.9))
    batches = minibatches(made, epochs=4)[:steps]  # four per epoch
    expected = reference(made, partial(torch.optim.SGD, momentum=0.9), batches=batches)
    torch.testing.assert_close(trained(made), expected, rtol=1e-11, atol=1e-12)


def test_as_many_local_steps_as_minibatches_equal_the_epochs():
    by_steps = problem_of(LocalTraining(local_steps=12), torch.float32)
    by_epochs = problem_of(LocalTraining(), torch.float32)
    assert torch.equal(trained(by_steps), trained(by_epochs))


@pytest.mark.parametrize("batch_size", [None, 6])
@pytest.mark.parametrize("clip", [0.0, 0.2, 100.0])
def test_gradient_is_the_update_of_one_step(clip, batch_size):
    training = LocalTraining(weight_decay=0.1, clip=clip, prox=3.0)
    made = problem_of(training, batch_size=batch_size)
    one_step = problem_of(
        LocalTraining(**{**vars(training), "local_steps": 1}), batch_size=batch_size
    )
    gradient = made.devices[0].oracle(KEY).gradient(made.theta0)[1]
    update = one_step.devices[0].oracle(KEY).train(made.theta0, ALPHA)[1]
    torch.testing.assert_close(gradient, update)


def test_batched_gradients_are_regularized_like_separate_ones(monkeypatch):
    monkeypatch.setattr("aquila.training.batched.MIN_GRADIENTS", 0)
    monkeypatch.setattr("aquila.training.batched.BatchedGradients._run_trial", lambda *_: True)
    x, y = data(40)
    runs = []
    for executor in ("batched", "sequential"):
        made = aquila.problem(
            network(),
            [(x[m::4], y[m::4]) for m in range(4)],
            training=LocalTraining(weight_decay=0.1, clip=0.3),
        )
        options = aquila.RunOptions(executor=executor)
        method = aquila.create("fedsgd", alpha=0.5)
        runs.append(aquila.simulate(method, made.theta0, made.devices, 3, options=options))
    torch.testing.assert_close(runs[0].theta, runs[1].theta, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("recipe", RECIPES)
def test_threads_and_widths_give_the_same_bits(recipe):
    x, y = data(48, torch.float32)
    torch.manual_seed(0)
    modules = [nn.Sequential(nn.Linear(6, n), nn.ReLU(), nn.Linear(n, 3)) for n in (8, 4)]
    runs = []
    for workers in (1, 2):
        made = aquila.problem(
            modules[0],
            [(x[m::4], y[m::4]) for m in range(4)],
            batch_size=5,
            training=RECIPES[recipe][0],
            options=aquila.ProblemOptions(narrower=modules[1:], groups=[0, 1, 0, 1], classes=3),
        )
        method = aquila.create("aquila", alpha=0.05, work="epochs")
        options = aquila.RunOptions(fleet=made.fleet, workers=workers)
        runs.append(aquila.simulate(method, made.theta0, made.devices, 3, options=options))
    assert torch.equal(runs[0].theta, runs[1].theta)
    assert runs[0].records == runs[1].records


@pytest.mark.parametrize("recipe", ["nesterov", "adamw", "factory"])
def test_resumed_run_has_the_same_bits(tmp_path, recipe):
    method = aquila.create("aquila", alpha=0.05, work="epochs")

    def run(folder, rounds, resume=False):
        made = problem_of(RECIPES[recipe][0], torch.float32)
        options = aquila.RunOptions(out=tmp_path / folder, resume=resume)
        return aquila.simulate(method, made.theta0, made.devices, rounds, options=options)

    whole = run("whole", 6)
    run("parts", 3)
    resumed = run("parts", 6, resume=True)
    assert torch.equal(whole.theta, resumed.theta)
    assert whole.records == resumed.records


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"training": LocalTraining(momentum=0.5)}, r"momentum 0\.5 \(saved: momentum 0\.9\)"),
        ({"training": LocalTraining()}, r"no momentum \(saved: momentum 0\.9\)"),
        ({"epochs": 4}, r"epochs 4 \(saved: epochs 3\)"),
        ({"batch_size": None}, r"batch_size 0 \(saved: batch_size 6\)"),
    ],
)
def test_run_resumes_only_with_the_same_recipe(tmp_path, changes, difference):
    method = aquila.create("aquila", alpha=0.05, work="epochs")

    def run(made, rounds, resume=False):
        options = aquila.RunOptions(out=tmp_path / "run", resume=resume)
        return aquila.simulate(method, made.theta0, made.devices, rounds, options=options)

    run(problem_of(LocalTraining(momentum=0.9)), 2)
    with pytest.raises(ValueError, match=f"cannot be resumed: {difference}$"):
        run(problem_of(**{"training": LocalTraining(momentum=0.9), **changes}), 3, resume=True)
    run(problem_of(LocalTraining(momentum=0.9)), 3, resume=True)


def test_factory_gets_the_parameters_and_the_step_size():
    seen = []

    def factory(params, lr):
        params = list(params)
        seen.append(([tuple(p.shape) for p in params], lr))
        return torch.optim.SGD(params, lr=lr)

    made = problem_of(LocalTraining(local_optimizer=factory))
    trained(made, 0.25)
    trained(made, 0.125)
    shapes = [(8, 6), (8,), (3, 8), (3,)]
    assert seen == [(shapes, 0.25), (shapes, 0.125)]


def test_factory_must_return_an_optimizer():
    made = problem_of(LocalTraining(local_optimizer=lambda params, lr: None))
    with pytest.raises(TypeError, match=r"must return a torch\.optim\.Optimizer, not a NoneType"):
        trained(made)


def test_optimizer_with_several_gradients_per_step_is_refused():
    made = problem_of(LocalTraining(local_optimizer=torch.optim.LBFGS))
    with pytest.raises(TypeError, match="cannot be LBFGS, which computes several gradients"):
        trained(made)


def test_names_of_functions_are_stable():
    named = LocalTraining(local_optimizer=torch.optim.RMSprop, clip=1.0)
    assert repr(named) == "LocalTraining(local_optimizer='torch.optim.rmsprop.RMSprop', clip=1.0)"
    with_options = LocalTraining(local_optimizer=partial(torch.optim.SGD, momentum=0.9))
    assert with_options.to_dict()["local_optimizer"] == "torch.optim.sgd.SGD(momentum=0.9)"


def test_repr_shows_what_differs_from_plain_sgd():
    assert repr(LocalTraining()) == "LocalTraining()"
    assert repr(LocalTraining(momentum=0.9)) == "LocalTraining(momentum=0.9)"
    assert set(LocalTraining().to_dict()) == set(training_parameters())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nesterov": True}, "nesterov needs momentum > 0"),
        (
            {"momentum": 0.9, "local_optimizer": "adam"},
            "momentum belongs to local_optimizer sgd, not adam",
        ),
        (
            {"momentum": 0.9, "local_optimizer": torch.optim.SGD},
            "momentum belongs to local_optimizer sgd; set it in your own optimizer",
        ),
        (
            {"weight_decay": 0.9, "local_optimizer": torch.optim.SGD},
            "weight_decay has no effect on your own optimizer; set it there",
        ),
        ({"local_optimizer": "rmsprop"}, "local_optimizer must be one of sgd, adam, adamw"),
        ({"momentum": -1}, "momentum must be a number from 0 to 1, not -1"),
        ({"clip": float("nan")}, "clip must be a number >= 0, not nan"),
        ({"local_steps": 1.5}, "local_steps must be a whole number >= 0, not 1.5"),
    ],
)
def test_invalid_values_are_named(values, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        LocalTraining(**values)


def test_optimizer_instances_are_refused():
    instance = torch.optim.SGD(network().parameters(), lr=0.1)
    with pytest.raises(TypeError, match=r"or a function \(params, lr\) .* not a SGD"):
        LocalTraining(local_optimizer=instance)


def test_problem_refuses_other_trainings():
    with pytest.raises(TypeError, match=r"training must be aquila\.LocalTraining"):
        problem_of({"momentum": 0.9})


@pytest.mark.parametrize(
    ("training", "named"),
    [
        (LocalTraining(momentum=0.9), "momentum cannot apply to a gradient"),
        (LocalTraining(local_steps=3), "local_steps cannot apply to a gradient"),
        (
            LocalTraining(local_optimizer="adamw", local_steps=3),
            "local_optimizer adamw and local_steps cannot apply to a gradient",
        ),
    ],
)
def test_gradients_refuse_what_needs_local_steps(training, named):
    made = problem_of(training)
    with pytest.raises(ValueError, match=f"{named}.*work='epochs'"):
        aquila.simulate(aquila.create("fedsgd"), made.theta0, made.devices, rounds=1)


def test_import_does_not_load_torch():
    code = "import sys, aquila.training.local_training; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
