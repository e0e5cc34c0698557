"""How a run is carried out: the options that every way to start a run shares.

Annotated fields are plain values. Settings files and the command line read them by these names.
The other fields are for Python only. Importing this module does not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from aquila.core.parameter import Bounds

if TYPE_CHECKING:
    from aquila.core.fleet import Fleet

NanPolicy = Literal["stop", "skip"]
ExecutorChoice = Literal["auto", "sequential", "batched", "threads"]


@dataclass(frozen=True)
class RunOptions:
    """Options of a run. The defaults suit a first experiment.

    Python-only fields:
        fleet: Which coordinates each device holds. Default: every device holds the whole model.
        out: Folder for records and checkpoints. Default: nothing is written.
        resume: Continue the run that `out` holds.
        identity: Text that distinguishes this run from others with the same method, model and
            seed. A checkpoint resumes only under the same text.
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
    executor: Annotated[ExecutorChoice, "how the simulator runs devices"] = "auto"
    workers: Annotated[int, Bounds("threads that run devices; 0 chooses", 0)] = 0
    state_memory: Annotated[
        float, Bounds("MiB of memory for device states, the rest on disk; 0: half the memory", 0)
    ] = 0.0
    evaluate_every: Annotated[int, Bounds("rounds between two evaluations", 1)] = 1
    checkpoint_every: Annotated[
        int, Bounds("rounds between two checkpoints; 0: only on an interrupt", 0)
    ] = 10
    fleet: Fleet | None = None
    out: Path | str | None = None
    resume: bool = False
    identity: str = ""
