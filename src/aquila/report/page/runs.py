"""A run as the report page sees it."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from aquila.report.colours import is_aquila
from aquila.report.labelled_run import LabelledRun
from aquila.report.runs import MAX_DEVICES
from aquila.runtime.options import LINK_OPTIONS, option_parameters
from aquila.sim.records import Record

PROBLEM_SETTINGS = (
    "data",
    "samples",
    "test_samples",
    "model",
    "widths",
    "devices",
    "split",
    "mask_classes",
    "dimension",
    "data_digest",
    "weights",
    "rows",
    *LINK_OPTIONS,
)
"""Settings that must be equal for the costs of two runs to be comparable."""

DEFAULTS = {name: option_parameters()[name].default for name in ("weights", "rows", *LINK_OPTIONS)}
"""Values of settings that older run folders do not record."""
WITHOUT_NAMES = ("dimension", "data_digest")
"""Settings that identify the model and the data of runs that do not name them."""


@dataclass(frozen=True)
class PageRun:
    """One run, or the mean of runs that differ only in the seed.

    Attributes:
        label: Unique name of the run.
        folder: Folder of the run, of the first seed if there are several.
        records: What happened in each round.
        facts: Contents of its run.json.
        device_of_sample: Device of each sample; empty if unknown.
        round_seconds: Real seconds of each round; empty if unknown.
        started: When the run started, if known.
        members: The runs of the seeds; empty for a single run.
    """

    label: str
    folder: Path
    records: Sequence[Record]
    facts: Mapping[str, object]
    device_of_sample: Sequence[int]
    round_seconds: Sequence[float] = ()
    started: datetime | None = None
    members: tuple["PageRun", ...] = ()

    @property
    def is_aquila(self) -> bool:
        """Whether the method is AQUILA or builds on it."""
        return is_aquila(self.label)

    @cached_property
    def result(self) -> LabelledRun:
        """Totals over the records."""
        return LabelledRun(self.label, self.records)

    @cached_property
    def cumulative_uplink(self) -> list[int]:
        """Uplink bytes up to the end of each round."""
        return list(accumulate(r.uplink_bytes for r in self.records))

    @property
    def problem(self) -> tuple[str, ...]:
        """The settings that define the problem, as text."""
        implied = WITHOUT_NAMES if "data" in self.facts else ()
        return tuple(
            json.dumps(None if name in implied else self.facts.get(name, DEFAULTS.get(name)))
            for name in PROBLEM_SETTINGS
        )

    @property
    def repetitions(self) -> Sequence["PageRun"]:
        """The runs of all seeds; of a single run, itself."""
        return self.members or (self,)

    @property
    def planned_rounds(self) -> int:
        """The number of rounds that the run was started with."""
        rounds = self.facts.get("rounds")
        return rounds if isinstance(rounds, int) else len(self.records)

    @cached_property
    def devices(self) -> int:
        """The number of devices."""
        seen = 1 + max((d for r in self.records for d in r.uplink), default=0)
        stated = self.facts.get("devices")
        return max(seen, stated) if isinstance(stated, int) and stated <= MAX_DEVICES else seen

    @cached_property
    def samples_per_device(self) -> list[int]:
        """Number of samples of each device; empty if the folder has no split."""
        counts = Counter(self.device_of_sample)
        return [counts[device] for device in range(max(counts, default=-1) + 1)]
