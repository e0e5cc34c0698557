"""The results that advice is based on. `benchmarks/advice_facts.py` makes the file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class MethodResult:
    """A method in one comparison; numbers are means over the seeds.

    Args:
        method: Name of the method.
        options: Its parameters that differ from the defaults.
        alpha: Its step size.
        alpha_factor: This step size divided by that of dense uploads.
        seeds: Number of runs.
        quality: Accuracy at the end, or 1 / perplexity for texts.
        gap: This quality minus that of dense uploads.
        up: Uplink bytes per parameter, device and round.
        down: Downlink bytes per parameter, device and round.
        rounds_to_quality: Rounds to the level of the comparison; None: missed or not measured.
        links: Seconds per round, and joules per device and round, by link preset.
        relayed: Whether the server passed its uploads on. `down` is still that of whole models.
    """

    method: str
    options: Mapping[str, object]
    alpha: float
    alpha_factor: float
    seeds: int
    quality: float
    gap: float
    up: float
    down: float
    rounds_to_quality: float | None = None
    links: Mapping[str, tuple[float, float]] | None = None
    relayed: bool = False

    @property
    def spec(self) -> str:
        """The method as option -m of the command line takes it."""
        assignments = ",".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.method}:{assignments}" if assignments else self.method


@dataclass(frozen=True)
class Study:
    """A comparison of methods with dense uploads, on one model, data set and split.

    `level` is the fraction of the quality of dense uploads that `rounds_to_quality` refers to.
    """

    source: str
    task: str
    model: str
    parameters: int
    devices: int
    split: str
    rounds: int
    settings: Mapping[str, object]
    dense: str
    dense_quality: float
    level: float | None
    runs: tuple[MethodResult, ...]

    def find(self, spec: str) -> MethodResult | None:
        """Return the result of a method, if the comparison has it."""
        return next((run for run in self.runs if run.spec == spec), None)


@dataclass(frozen=True)
class CodedDownlink:
    """Models sent as coded differences, compared with whole models.

    `ratio` divides the downlink bytes, and `gap` is the difference in accuracy.
    """

    source: str
    method: str
    downlink_error: float
    seeds: int
    ratio: float
    gap: float


@dataclass(frozen=True)
class Facts:
    """All results that advice is based on. `sizes` has the parameters of each data and model."""

    studies: tuple[Study, ...]
    coded_downlink: tuple[CodedDownlink, ...]
    sizes: Mapping[str, int]


@cache
def read_facts() -> Facts:
    """Return the facts that are part of the package."""
    return parse_facts(json.loads(files("aquila.advice").joinpath("facts.json").read_text()))


def parse_facts(content: Mapping[str, Any]) -> Facts:
    """Return the facts of a file with this content."""
    studies = tuple(
        Study(**{**one, "runs": tuple(MethodResult(**run) for run in one["runs"])})
        for one in content["studies"]
    )
    coded = tuple(CodedDownlink(**one) for one in content["coded_downlink"])
    return Facts(studies, coded, content["sizes"])
