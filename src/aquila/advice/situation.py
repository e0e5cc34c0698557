"""What a user asks advice for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from aquila.core.parameter import Bounds, check_whole_number
from aquila.runtime.options import RunOptions, check_options
from aquila.sim.network import Network
from aquila.tasks.partition import parse_split

IID_SPLITS = ("iid", "blocks", "unequal")
"""Splits in which all devices have data of the same kind."""


@dataclass(frozen=True)
class Situation:
    """A model, a fleet and limits.

    Args:
        parameters: Trained parameters of the model.
        model: Name of a model of `aquila.tasks`, empty for another model.
        data: Name of its data set, empty for other data.
        devices: Number of devices.
        split: Split of the data over the devices, such as iid, classes:2 or dirichlet:0.3.
        rounds: Rounds of training.
        options: Options of the run. Advice uses participation, downlink_error, relay_uploads and
            those of the link model. Without a link, time and energy are not computed.
        seed: Seed of the links.
        max_mb: Limit of megabytes per device in both directions, None for no limit.
        max_hours: Limit of simulated hours, None for no limit.
        settings: Settings of the local and server training that are known, by name.
        alpha: Step size of dense uploads, None if it is not known.
        tolerance: Points of quality below dense uploads that still count as the same quality.
    """

    parameters: int
    model: str = ""
    data: str = ""
    devices: int = 10
    split: str = "iid"
    rounds: int = 200
    options: RunOptions = RunOptions()
    seed: int = 0
    max_mb: float | None = None
    max_hours: float | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    alpha: float | None = None
    tolerance: float = 0.5

    def __post_init__(self) -> None:
        for name in ("parameters", "devices", "rounds"):
            check_whole_number(name, getattr(self, name), 1)
        parse_split(self.split)
        for name in ("max_mb", "max_hours"):
            value, bounds = getattr(self, name), Bounds("", above=0)
            if value is not None and not bounds.allows(value):
                raise ValueError(f"{name} must be a number {bounds}, not {value:g}")
        if not (bounds := Bounds("", 0, 100)).allows(self.tolerance):
            raise ValueError(f"tolerance must be a number {bounds}, not {self.tolerance:g}")
        check_options(self.options)
        if self.network is None and self.max_hours is not None:
            raise ValueError("max_hours needs the links of the devices: set link")

    @cached_property
    def network(self) -> Network | None:
        """The links of the devices, None without a link model."""
        return Network.of(self.options, self.devices, self.seed)

    @property
    def participation(self) -> float:
        """Fraction of the devices per round."""
        return self.options.participation

    @property
    def downlink_error(self) -> float:
        """Error of coded models on the downlink; 0: whole models, or as advised."""
        return self.options.downlink_error

    @property
    def iid(self) -> bool:
        """Whether all devices have data of the same kind."""
        return is_iid(self.split)

    def describe(self) -> str:
        """Return the situation in one line."""
        model = self.model or "a model"
        model += f" on {self.data}" if self.data else ""
        link = f"link {self.network.model.name}" if self.network else "no link model"
        some = f" ({self.participation:.0%} per round)" if self.participation < 1 else ""
        return (
            f"{model} with {self.parameters:,} parameters, {self.devices:,} "
            f"device{'s' if self.devices > 1 else ''}{some}, split {self.split}, "
            f"{self.rounds:,} rounds, {link}"
        )


def is_iid(split: str) -> bool:
    """Return whether all devices of a split have data of the same kind."""
    return split.partition(":")[0] in IID_SPLITS
