"""The paper's Tables II and III as data, and which run belongs to which of their rows."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from aquila.report.runs import FoundRun

TABLES = (2, 3)


@dataclass(frozen=True)
class Row:
    """A row of a table: its setting, and for each method the printed quality and GiB.

    Quality is accuracy in percent, or perplexity where `text`.
    """

    table: int
    title: str
    data: str
    model: str
    split: str
    widths: str
    devices: int
    rounds: int
    batch_size: int
    beta: float
    printed: Mapping[str, tuple[float, float]]
    note: str = ""

    @property
    def text(self) -> bool:
        """Whether quality is perplexity."""
        return self.data == "wikitext2"

    def describe(self) -> str:
        """Return one line about the row."""
        half = ", half of them at half width" if "," in self.widths else ""
        return f"{self.title}: {self.model}, {self.devices} devices{half}, K = {self.rounds}"

    def holds(self, run: FoundRun) -> bool:
        """Say whether a run is of this row, going by its setting: all data, nothing lost."""
        facts = run.facts
        whole = {
            "samples": 0, "test_samples": 0, "loss_rate": 0, "participation": 1, "downlink": 0,
        }  # fmt: skip
        return (
            all(facts.get(name) == getattr(self, name) for name in SAME)
            and _widths(facts.get("widths")) == _widths(self.widths)
            and all(facts.get(name, value) == value for name, value in whole.items())
            and run.beta in (None, self.beta)  # others belong to Figures 4 and 5
        )

    def label(self, run: FoundRun) -> str:
        """Return the name of a run's line: its label, without the beta that is the row's anyway."""
        if run.beta != self.beta:
            return run.result.label
        parts = run.result.label.split(" ")
        return " ".join(part for part in parts if not part.startswith("beta="))

    def differences(self, run: FoundRun) -> list[str]:
        """Say in what a run of this row differs from the paper's setting."""
        wanted = {
            "work": "epochs",
            "epochs": 1,
            "batch_size": self.batch_size,
            "mask_classes": self.split.startswith("classes"),
        }
        is_ = {name: run.facts.get(name, value) for name, value in wanted.items()}
        return [f"{n} {is_[n]}, not {wanted[n]}" for n in wanted if is_[n] != wanted[n]]


SAME = ("data", "model", "split", "devices")


def paper_rows(table: int) -> list[Row]:
    """Return the rows of a table of the paper."""
    text = files("aquila.report").joinpath("paper_tables.toml").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = tomllib.loads(text)["rows"]
    return [Row(**row) for row in rows if row["table"] == table]


def _widths(text: object) -> list[float]:
    """Return the widths that a text names; none if it is something else."""
    try:
        return [float(width) for width in str(text).split(",")]
    except ValueError:
        return []
