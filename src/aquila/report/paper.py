"""The paper's Tables II and III as data, and the matching of runs to their rows."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from aquila.report.runs import StoredRun
from aquila.runtime.options import RECIPE, option_parameters
from aquila.training.local_training import training_parameters

TABLES = (2, 3)


@dataclass(frozen=True)
class PaperRow:
    """A row of a table: its setting, and the printed quality and GiB of each method.

    Quality is accuracy in percent, or perplexity if `is_text`.
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
    def is_text(self) -> bool:
        """Whether quality is perplexity."""
        return self.data == "wikitext2"

    @property
    def differs_by_class(self) -> bool:
        """Whether devices lack some classes or words, which HeteroFL then masks and averages."""
        return self.is_text or self.split.startswith("classes")

    def describe(self) -> str:
        """Return a one-line description of the row."""
        half_width = ", half of them at half width" if "," in self.widths else ""
        return f"{self.title}: {self.model}, {self.devices} devices{half_width}, K = {self.rounds}"

    def matches(self, run: StoredRun) -> bool:
        """Return whether a run has the setting of this row.

        It uses all data, loses no message and trains by plain descent. Rows of classes may be
        averaged over all devices or over their owners.
        """
        facts = run.facts
        full_run = {
            "samples": 0, "test_samples": 0, "uplink_loss": 0, "participation": 1,
            "downlink_error": 0, "relay_uploads": False, "augment": False, **_plain_training(),
        }  # fmt: skip
        return (
            all(facts.get(name) == getattr(self, name) for name in MATCHED_SETTINGS)
            and _parse_widths(facts.get("widths")) == _parse_widths(self.widths)
            and all(facts.get(name, value) == value for name, value in full_run.items())
            and run.beta in (None, self.beta)  # other values belong to Figures 4 and 5
        )

    def label(self, run: StoredRun) -> str:
        """Return the label of a run, without beta if it is the beta of this row."""
        if run.beta != self.beta:
            return run.result.label
        parts = run.result.label.split(" ")
        return " ".join(part for part in parts if not part.startswith("beta="))

    def rows_of(self, run: StoredRun) -> str:
        """Return the option `rows` of a run; "all" if every device has all classes and words."""
        return str(run.facts.get("rows", "all")) if self.differs_by_class else "all"

    def differences(self, run: StoredRun) -> list[str]:
        """Return how a run of this row differs from the paper's setting."""
        wanted = {
            "work": "epochs",
            "epochs": 1,
            "batch_size": self.batch_size,
            "mask_classes": self.differs_by_class,
            "rows": "owners" if self.differs_by_class else "all",
        }
        actual = {name: run.facts.get(name, value) for name, value in wanted.items()}
        actual["rows"] = self.rows_of(run)
        return [f"{n} {actual[n]}, not {wanted[n]}" for n in wanted if actual[n] != wanted[n]]


MATCHED_SETTINGS = ("data", "model", "split", "devices")


def paper_rows(table: int) -> list[PaperRow]:
    """Return the rows of a table of the paper."""
    text = files("aquila.report").joinpath("paper_tables.toml").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = tomllib.loads(text)["rows"]
    return [PaperRow(**row) for row in rows if row["table"] == table]


def _plain_training() -> dict[str, object]:
    """Return the training options of plain descent, by name."""
    options, local = option_parameters(), training_parameters()
    return {
        **{name: options[name].default for name in RECIPE if name != "rows"},
        **{name: parameter.default for name, parameter in local.items()},
    }


def _parse_widths(text: object) -> list[float]:
    """Return the widths in a comma-separated text; empty if it is not one."""
    try:
        return [float(width) for width in str(text).split(",")]
    except ValueError:
        return []
