"""How a run is carried out: options shared by all entry points.

Annotated fields are plain values. Settings files and the command line read them by these names.
The other fields are for Python only. Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from aquila.core.parameter import Bounds, Parameter, parameters

if TYPE_CHECKING:
    from torch import Tensor

    from aquila.core.fleet import Fleet
else:
    Fleet = Tensor = Any  # these modules import torch, and only type checkers need the classes

NanPolicy = Literal["stop", "skip"]
ExecutorChoice = Literal["auto", "sequential", "batched", "threads"]


@dataclass(frozen=True)
class RunOptions:
    """Options of a run. The defaults suit a first experiment.

    The annotation of each plain field says what it is and which values are allowed. The executors
    are `sequential`, `threads`, `batched` (gradients of many devices in one pass, if that gives the
    same bits) and `auto`, which picks the fastest.

    Python-only fields:
        fleet: Which coordinates each device holds. Default: every device holds the whole model.
        out: Folder for records and checkpoints. Default: nothing is written.
        resume: Continue the run that `out` holds.
        identity: Text that distinguishes this run from others with the same method, model and
            seed. A checkpoint resumes only under the same text.
        facts: Entries of `run.json` that only the caller knows, such as {"data": "my photos"}. The
            report shows them.
        partition: The samples of each device, as indices into the data set, for `split.json`.
    """

    participation: Annotated[
        float, Bounds("fraction of the devices sampled per round", above=0, high=1)
    ] = 1.0
    downlink_error: Annotated[
        float,
        Bounds("relative error of models sent as coded differences; 0 sends whole models", 0, 0.99),
    ] = 0.0
    uplink_loss: Annotated[float, Bounds("probability that a reply is lost", 0, 1)] = 0.0
    downlink_loss: Annotated[float, Bounds("probability that an order is lost", 0, 1)] = 0.0
    on_nan: Annotated[
        NanPolicy, "on a NaN gradient: stop the run, or let the device skip the round"
    ] = "stop"
    executor: Annotated[
        ExecutorChoice, "how the simulator runs devices; the results are the same"
    ] = "auto"
    workers: Annotated[int, Bounds("threads that run devices; 0: chosen automatically", 0)] = 0
    state_memory: Annotated[
        float,
        Bounds("device states above this many MiB go to disk; 0: half of the memory", 0),
    ] = 0.0
    evaluate_every: Annotated[int, Bounds("rounds between two evaluations", 1)] = 1
    checkpoint_every: Annotated[
        int, Bounds("rounds between two checkpoints; 0: only on an interrupt", 0)
    ] = 10
    stop_at: Annotated[
        float,
        Bounds("end the run when the main metric reaches this value; 0: never", 0),
    ] = 0.0
    patience: Annotated[
        int,
        Bounds("end the run after this many evaluations without improvement; 0: never", 0),
    ] = 0
    fleet: Fleet | None = None
    out: Path | str | None = None
    resume: bool = False
    identity: str = ""
    facts: Mapping[str, object] | None = None
    partition: Sequence[Tensor] | None = None

    def __post_init__(self) -> None:
        for name, parameter in option_parameters().items():
            object.__setattr__(self, name, parameter.check(getattr(self, name)))
        if not isinstance(self.out, Path | str | None) or self.out == "":
            raise ValueError(f"out must be the path of a folder, not {self.out!r}")
        if not isinstance(self.facts, Mapping | None):
            raise ValueError(f"facts must be entries of run.json by name, not {self.facts!r}")

    def to_dict(self) -> dict[str, object]:
        """Return the plain values, by name."""
        return {name: getattr(self, name) for name in option_parameters()}


@cache
def option_parameters() -> dict[str, Parameter]:
    """Return the fields that settings files and the command line can set, by name."""
    return parameters(RunOptions)
