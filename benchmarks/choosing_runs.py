"""Runs of `choosing.py`: tasks, settings of the methods, and one run with its curves."""

import math
import time
from collections import deque
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import accumulate

from machine import cpu_name

from aquila.core.method import needs_links
from aquila.methods import METHODS, create
from aquila.runtime.nan_guard import NonFiniteError
from aquila.runtime.options import RunOptions
from aquila.runtime.traffic import Cost, Traffic
from aquila.sim.network import Network, RoundClock
from aquila.sim.setting import Setting
from aquila.sim.simulate import simulate
from aquila.tasks.datasets import read_dataset
from aquila.training.shard_data import TensorData

PRESETS = ("nb_iot", "lte", "mixed")
"""Link models under which time and energy are computed."""
SPLITS = ("iid", "dirichlet:0.3")
TUNING_SEED, TUNING_PRESET = 0, "mixed"
END_WINDOW = 5
"""Evaluations at the end of a run over which quality is averaged."""


@dataclass(frozen=True)
class Task:
    """A task, and the step sizes that are tried.

    Args:
        setting: Everything about its runs but split, seed and method.
        dense: The method without compression and with the local work of most methods.
        alphas: Step sizes of the dense method. The best is α₀.
        held_out: Training images that no device has, which choose step sizes. Without them, the
            training loss does.
        factors: Step sizes of the other methods, as factors on α₀.
        sign_factors: Those of signSGD, whose steps do not shrink with the gradient.
    """

    setting: Setting
    dense: str
    alphas: tuple[float, ...]
    held_out: int = 0
    factors: tuple[float, ...] = (1.0, 1 / 3)
    sign_factors: tuple[float, ...] = (1 / 50, 1 / 150)

    def factors_of(self, method: str) -> tuple[float, ...]:
        """Return the factors on α₀ that a method tries."""
        return self.sign_factors if method == "signsgd" else self.factors


TASKS = {
    "digits_mlp": Task(
        Setting(
            data="digits", model="mlp", devices=10, rounds=200, work="gradient", epochs=5,
            options=RunOptions(weights="samples", evaluate_every=2, workers=1),
        ),
        dense="fedsgd",
        alphas=(0.25, 0.5, 1.0, 2.0),
    ),
    "cifar10_cnn": Task(
        Setting(
            data="cifar10", model="cnn", samples=2000, test_samples=1000, devices=10, rounds=50,
            work="epochs", epochs=1, batch_size=20,
            options=RunOptions(weights="samples", evaluate_every=2, workers=1),
        ),
        dense="fedavg",
        alphas=(0.05, 0.1, 0.2),
        held_out=1000,
    ),
}  # fmt: skip

SETTINGS: dict[str, tuple[dict[str, object], ...]] = {
    "aquila": ({"beta": 0.1}, {"beta": 0.1, "level_rule": "tight"}),
    "qsgd": ({"bits": 4, "bucket": 512},),
    "dadaquant": ({"norm": "l2"},),
    "laq": ({"bits": 8},),
    "marina": ({"p_rule": "authors"},),
    "diana": ({"bits": 2},),
    "eden": ({}, {"density": 0.1}),
}
"""Parameters from the papers where they differ from our defaults, and second variants."""


@dataclass(frozen=True)
class Case:
    """One run. `preset` is empty unless the method reads the links."""

    task: str
    split: str
    method: str
    options: tuple[tuple[str, object], ...]
    seed: int
    alpha: float
    preset: str = ""

    @property
    def label(self) -> str:
        """The method with its options, as in tables."""
        return " ".join([self.method, *(f"{name}={value}" for name, value in self.options)])

    def __str__(self) -> str:
        preset = f" {self.preset}" if self.preset else ""
        return f"{self.task} {self.split} seed {self.seed}{preset}: {self.label} α={self.alpha:g}"


def variants(rounds: int) -> list[tuple[str, tuple[tuple[str, object], ...]]]:
    """Return every method of the catalogue with its options for runs of this length."""
    found = []
    for name in METHODS:
        for options in SETTINGS.get(name, ({},)):
            extra = {"phi": max(1, rounds // 10)} if name == "dadaquant" else {}
            found.append((name, tuple({**options, **extra}.items())))
    return found


def presets_of(method: str) -> tuple[str, ...]:
    """Return the link models that a method must be run with; one without a link for most."""
    return PRESETS if needs_links(METHODS[method]().server) else ("",)


def run_case(case: Case, data_folder: str) -> dict[str, object]:
    """Train, and return the run as plain values."""
    import torch

    torch.set_num_threads(1)
    start = time.perf_counter()
    setting, problem, held_out = load_problem(case.task, case.split, case.seed, data_folder)
    work = {"work": setting.work} if "work" in METHODS[case.method].parameters else {}
    parameters = {"alpha": case.alpha, **work, **dict(case.options)}
    method = create(case.method, **parameters)
    records, models, diverged = [], deque(maxlen=END_WINDOW), False

    def evaluate(theta):
        models.append(theta)
        return problem.evaluate(theta)

    try:
        simulate(
            method,
            problem.theta0,
            problem.devices,
            setting.rounds,
            case.seed,
            evaluate=evaluate,
            on_record=records.append,
            options=replace(setting.options, fleet=problem.fleet, link=case.preset),
        )
    except NonFiniteError:
        diverged = True
    return {
        **asdict(case),
        "options": dict(case.options),
        "parameters": parameters,
        "work": work.get("work", METHODS[case.method].fixed_work),
        "dimension": len(problem.theta0),
        "rounds": len(records),
        "diverged": diverged,
        "train_loss": None if diverged else training_loss(problem, models),
        "held_out": None if diverged else held_out_accuracy(problem, models, held_out),
        "curve": curve_of(records, case, setting.devices),
        "machine": f"{cpu_name()}, torch {torch.__version__}",
        "minutes": round((time.perf_counter() - start) / 60, 3),
    }


@lru_cache(maxsize=2)
def load_problem(task: str, split: str, seed: int, data_folder: str):
    """Return setting, problem and held-out images of a run; loading the images takes a second."""
    setting = TASKS[task].setting
    folder = "" if setting.data == "digits" else data_folder
    setting = replace(setting, split=split, seed=seed, data_folder=folder)
    train = read_dataset(setting.data, folder or None, seed).train
    held_out = [part[len(part) - TASKS[task].held_out :].clone() for part in train]
    return setting, setting.problem()[0], tuple(held_out)


def held_out_accuracy(problem, models, held_out) -> float | None:
    """Return the mean accuracy of models on held-out images, None without images or models."""
    if not len(held_out[0]) or not models:
        return None
    evaluate = replace(problem.evaluate, test=TensorData("held-out images", held_out))
    return sum(evaluate(model)["test_accuracy"] for model in models) / len(models)


def training_loss(problem, models) -> float | None:
    """Return the mean loss of models on the training data, None if it is not finite."""
    shards = [(shard.samples, shard.data) for shard in problem.devices]
    tests = [(count, replace(problem.evaluate, test=data)) for count, data in shards]
    total = sum(count * test(model)["test_loss"] for model in models for count, test in tests)
    mean = total / (len(models) * sum(count for count, _ in shards)) if models else math.nan
    return mean if math.isfinite(mean) else None


def curve_of(records, case: Case, devices: int) -> dict[str, object]:
    """Return quality, bytes, time and energy so far at every evaluation."""
    evaluated = [n for n, record in enumerate(records) if "test_accuracy" in record.metrics]

    def so_far(values, digits=0):
        totals = list(accumulate(values))
        return [round(totals[n], digits) if digits else totals[n] for n in evaluated]

    if case.preset:
        costs = {case.preset: [(record.seconds, record.joules) for record in records]}
    else:
        costs = {name: link_costs(records, name, devices, case.seed) for name in PRESETS}
    return {
        "rounds": [n + 1 for n in evaluated],
        "quality": [round(records[n].metrics["test_accuracy"], 5) for n in evaluated],
        "uplink_bytes": so_far(record.uplink_bytes for record in records),
        "downlink_bytes": so_far(record.downlink_bytes for record in records),
        "seconds": {name: so_far((s for s, _ in cost), 2) for name, cost in costs.items()},
        "joules": {name: so_far((j for _, j in cost), 2) for name, cost in costs.items()},
    }


def link_costs(records, preset: str, devices: int, seed: int) -> list[tuple[float, float]]:
    """Return seconds and joules of each round, as if the run had used this link model.

    Without a deadline a link model changes no bytes. All devices get a model and scalars of the
    same length, so each has an equal part of the downlink.
    """
    network = Network.of(RunOptions(link=preset), devices, seed)
    costs = []
    for record in records:
        clock, traffic = RoundClock(network, record.round), Traffic()
        for device in clock.start(range(devices)):
            traffic.add_downlink(device, Cost(record.downlink_bytes // devices))
            traffic.add_uplink(device, Cost(record.uplink[device]))
            clock.add_reply(device, traffic)
        cost = clock.cost(all_arrived=True)
        costs.append((cost.seconds, cost.joules))
    return costs
