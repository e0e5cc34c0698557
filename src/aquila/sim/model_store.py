"""The models of a run in its folder: the final one, and the best so far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from aquila.core.vector import Vector
from aquila.sim.model_files import read_metadata, read_model, write_model
from aquila.sim.records import Record
from aquila.sim.stopping import BestRound, main_metric
from aquila.training.module_builder import ModuleBuilder
from aquila.version import __version__

MODEL_FILE = "model.safetensors"
"""File in the folder of a run with its final model."""
BEST_FILE = "best.safetensors"
"""File in the folder of a run with its best model."""
THETA = "theta"
"""Name of the vector in the file of a run without a module."""


@dataclass(frozen=True)
class BestModel:
    """The model with the best value of the main metric.

    Args:
        theta: The model, one flat vector.
        round: The round after which it was evaluated, from 0.
        metric: Name of the main metric.
        value: Value of the main metric.
    """

    theta: Vector = field(repr=False)
    round: int
    metric: str
    value: float

    @property
    def facts(self) -> dict[str, str]:
        """Round, metric and value, for the metadata of a file."""
        return {"round": str(self.round), "metric": self.metric, "value": repr(self.value)}


def facts_of_last(records: Sequence[Record]) -> dict[str, str]:
    """Return the last round and its main metric, if any, for the metadata of a file."""
    if not records:
        return {}
    last = records[-1]
    facts, metric = {"round": str(last.round)}, main_metric(last.metrics)
    return facts if metric is None else {
        **facts, "metric": metric, "value": repr(last.metrics[metric])
    }  # fmt: skip


def save_model(
    path: Path, theta: Vector, builder: ModuleBuilder | None, facts: Mapping[str, str]
) -> None:
    """Write the state dict of a trained module, or the vector of a run without a module."""
    tensors = {THETA: theta} if builder is None else builder.module_for(theta).state_dict()
    write_model(path, tensors, {"aquila": __version__, **facts})


class ModelStore:
    """Keeps the best model of a run, and writes its models to the folder of the run, if any.

    The best model is written with every checkpoint and at the end, also if the run diverges.
    Writing it whenever it improves would slow down runs of large models.
    """

    def __init__(self, folder: Path | None, method: str, builder: ModuleBuilder | None) -> None:
        self._folder, self._method, self.builder = folder, method, builder
        self._best_is_written = True
        self._resumed_rounds = 0
        self.best: BestModel | None = None

    def resume(self, theta: Vector, rounds: int) -> None:
        """Read the best model of a run that continues after this number of rounds.

        `theta` is any model of the run.
        """
        self._resumed_rounds = rounds
        if self._folder is None:
            return
        path = self._folder / BEST_FILE
        facts = read_metadata(path)
        if "value" not in facts or int(facts["round"]) >= rounds:
            return
        names = [THETA] if self.builder is None else self.builder.trained_parameters
        tensors = read_model(path)
        best = torch.cat([tensors[name].reshape(-1) for name in names]).to(theta)
        self.best = BestModel(best, int(facts["round"]), facts["metric"], float(facts["value"]))

    def keep_best(self, theta: Vector, best: BestRound) -> None:
        """Keep the model of the best round so far."""
        self.best = BestModel(theta.clone(), best.round, best.metric, best.value)
        self._best_is_written = False

    def write_best(self) -> None:
        """Write the best model, if it has changed since it was last written."""
        if self._folder is not None and self.best is not None and not self._best_is_written:
            self._save(self._folder / BEST_FILE, self.best.theta, self.best.facts)
            self._best_is_written = True

    def write_final(self, theta: Vector, records: Sequence[Record]) -> None:
        """Write the final and the best model, unless a resumed run had no rounds left."""
        if self._folder is None:
            return
        ran = len(records) > self._resumed_rounds
        if ran or not (self._folder / MODEL_FILE).exists():
            self._save(self._folder / MODEL_FILE, theta, facts_of_last(records))
        self.write_best()

    def _save(self, path: Path, theta: Vector, facts: Mapping[str, str]) -> None:
        save_model(path, theta, self.builder, {"method": self._method, **facts})
