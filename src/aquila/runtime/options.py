"""How a run is carried out: options shared by all entry points.

Annotated fields are plain values. Settings files and the command line read them by these names.
The other fields are for Python only. Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from aquila.core.parameter import Bounds, Parameter, parameters
from aquila.runtime.link_model import check_link, link_name
from aquila.runtime.lr_schedule import (
    Schedule,
    parse_schedule,
    resolve_schedule,
    schedule_name,
)

if TYPE_CHECKING:
    from torch import Tensor

    from aquila.core.fleet import Fleet
else:
    Fleet = Tensor = Any  # these modules import torch, and only type checkers need the classes

NanPolicy = Literal["quarantine", "stop", "skip"]
UploadLimit = Literal["adaptive", "median", "none"]
NoiseBy = Literal["server", "devices"]
ExecutorChoice = Literal["auto", "sequential", "batched", "threads"]
ServerOptimizerChoice = Literal["sgd", "momentum", "nesterov", "adam", "yogi"]
Weights = Literal["uniform", "samples"]
Rows = Literal["all", "owners"]
Selection = Literal["random", "weighted", "pow_d", "cpow_d", "rpow_d"]
Fading = Literal["none", "rayleigh"]
Access = Literal["orthogonal", "noma"]

SCHEDULES = ("schedule", "server_schedule")
PROTECTION = ("upload_limit", "dp_clip", "dp_noise", "dp_delta", "dp_noise_by")
"""Fields that limit what one device can do to the model, and what the model says about it."""
RECIPE = (
    "server_optimizer", "server_lr", "server_momentum", "server_beta2", "server_tau", *SCHEDULES,
    "model_average", "weights", "rows", "selection", "candidates", *PROTECTION,
)  # fmt: skip
"""Fields that say how the server trains. A run resumes only with the same values."""
LINK_OPTIONS = ("link", "deadline", "fading", "access", "compute_time")
"""Fields that describe the simulated network. A run resumes only with the same values."""
OPTIMIZERS_WITH = {
    "server_momentum": ("momentum", "nesterov", "adam", "yogi"),
    "server_beta2": ("adam", "yogi"),
    "server_tau": ("adam", "yogi"),
}
"""Server optimizers that use a field."""


@dataclass(frozen=True)
class RunOptions:
    """Options of a run. The defaults suit a first experiment.

    Settings files and the command line have options of the same names, except for the fields from
    `fleet` on, which are for Python only. The executors are `sequential`, `threads`, `batched`
    (gradients of many devices in one pass, if that gives the same bits) and `auto`, which picks the
    fastest.

    A schedule multiplies a learning rate by a factor per round. In Python it may also be a function
    round -> factor. `schedule` applies to alpha, and `server_schedule` to `server_lr`.
    docs/training.md explains the training options.

    A link model gives each round a simulated duration and energy. In Python, `link` may also be an
    `aquila.LinkModel`. docs/links.md explains it.

    `on_nan` and `upload_limit` protect the run from bad devices, see docs/bad-devices.md. The
    options `dp_clip`, `dp_noise`, `dp_delta` and `dp_noise_by` are those of differential privacy,
    see docs/privacy.md.

    Args:
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
    relay_uploads: Annotated[
        bool, "pass uploads on to all devices where that takes fewer bytes than the model"
    ] = False
    uplink_loss: Annotated[float, Bounds("probability that a reply is lost", 0, 1)] = 0.0
    downlink_loss: Annotated[float, Bounds("probability that an order is lost", 0, 1)] = 0.0
    on_nan: Annotated[
        NanPolicy, "on a NaN gradient: quarantine the device, stop the run, or skip the device"
    ] = "quarantine"
    upload_limit: Annotated[
        UploadLimit, "reject uploads far above the fleet's norms; median: also clip; none: off"
    ] = "adaptive"
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
    keep_checkpoints: Annotated[
        int, Bounds("earlier checkpoints that are kept for a rollback", 0)
    ] = 3
    server_optimizer: Annotated[
        ServerOptimizerChoice, "how the server applies the step of the method"
    ] = "sgd"
    server_lr: Annotated[
        float, Bounds("rate of the server optimizer; with sgd, 1 averages local models", 1e-9, 1e9)
    ] = 1.0
    server_momentum: Annotated[
        float, Bounds("decay of the server's momentum, for all optimizers but sgd", 0, 0.9999)
    ] = 0.9
    server_beta2: Annotated[
        float, Bounds("decay of the mean square, for adam and yogi", 0, 0.999999)
    ] = 0.99
    server_tau: Annotated[
        float, Bounds("added to the root mean square, for adam and yogi", above=0)
    ] = 1e-3
    schedule: Annotated[
        str, "schedule of alpha: constant, cosine, linear, steps:60,120, warmup:5+cosine"
    ] = "constant"
    server_schedule: Annotated[str, "schedule of server_lr, written like schedule"] = "constant"
    model_average: Annotated[
        float, Bounds("decay of the average of models to evaluate and save; 0: none", 0, 0.9999)
    ] = 0.0
    weights: Annotated[Weights, "weight of a device in averages: 1, or its number of samples"] = (
        "uniform"
    )
    rows: Annotated[
        Rows, "rows of classes and words: mean over all devices, or over those that have them"
    ] = "all"
    stop_at: Annotated[
        float,
        Bounds("end the run when the main metric reaches this value, such as 0.9; 0: never", 0),
    ] = 0.0
    patience: Annotated[
        int,
        Bounds("end the run after this many evaluations without improvement; 0: never", 0),
    ] = 0
    selection: Annotated[Selection, "how a round selects devices, if participation is below 1"] = (
        "random"
    )
    candidates: Annotated[
        int, Bounds("candidates of pow_d, cpow_d and rpow_d; 0: twice the devices per round", 0)
    ] = 0
    link: Annotated[
        str, "link model: lora, nb_iot, 3g, lte, wifi, mixed or csv:FILE; empty: none"
    ] = ""
    deadline: Annotated[
        float, Bounds("simulated seconds per round; later replies are lost; 0: no limit", 0)
    ] = 0.0
    fading: Annotated[Fading, "fading of the link model's rates"] = "none"
    access: Annotated[Access, "how the devices of the link model share the uplink"] = "orthogonal"
    compute_time: Annotated[
        float, Bounds("simulated seconds of local work per round; 0: those of the link", 0)
    ] = 0.0
    dp_clip: Annotated[
        float, Bounds("differential privacy: largest norm of a device's vector; 0: off", 0)
    ] = 0.0
    dp_noise: Annotated[
        float, Bounds("standard deviation of the Gaussian noise ÷ dp_clip", 0, 1e6)
    ] = 0.0
    dp_delta: Annotated[float, Bounds("delta at which epsilon is computed", above=0, high=0.5)] = (
        1e-5
    )
    dp_noise_by: Annotated[
        NoiseBy, "who adds the noise: the server to the sum, or each device to its vector"
    ] = "server"
    fleet: Fleet | None = None
    out: Path | str | None = None
    resume: bool = False
    identity: str = ""
    facts: Mapping[str, object] | None = None
    partition: Sequence[Tensor] | None = None

    def __post_init__(self) -> None:
        for name, parameter in option_parameters().items():
            value: Any = getattr(self, name)
            if name in SCHEDULES:
                _check_schedule(name, value)
            elif name == "link":
                check_link(value)
            else:
                object.__setattr__(self, name, parameter.check(value))
        self._check_server_optimizer()
        self._check_privacy()
        if not isinstance(self.out, Path | str | None) or self.out == "":
            raise ValueError(f"out must be the path of a folder, not {self.out!r}")
        if not isinstance(self.resume, bool):
            raise ValueError(f"resume must be True or False, not {self.resume!r}")
        if not isinstance(self.facts, Mapping | None):
            raise ValueError(f"facts must be entries of run.json by name, not {self.facts!r}")
        if self.link == "" and (unused := [n for n in LINK_OPTIONS if n in self.link_options]):
            raise ValueError(f"{unused[0]} needs a link model: set link")

    def _check_server_optimizer(self) -> None:
        for name, optimizers in OPTIMIZERS_WITH.items():
            changed = getattr(self, name) != option_parameters()[name].default
            if changed and self.server_optimizer not in optimizers:
                raise ValueError(
                    f"{name} belongs to server_optimizer {', '.join(optimizers)}, not "
                    f"{self.server_optimizer}"
                )

    def _check_privacy(self) -> None:
        if (self.dp_clip > 0) != (self.dp_noise > 0):
            raise ValueError("differential privacy needs both dp_clip and dp_noise above 0")
        if not self.is_private and (unused := [n for n in PROTECTION[3:] if n in self.recipe]):
            raise ValueError(f"{unused[0]} needs differential privacy: set dp_clip and dp_noise")
        if self.is_private and self.selection not in ("random", "weighted"):
            raise ValueError(
                f"selection {self.selection} reads losses, which get no noise; with differential "
                "privacy, choose random or weighted"
            )
        if self.is_private and self.relay_uploads and self.dp_noise_by == "server":
            raise ValueError(
                "relay_uploads shows devices the uploads of others, to which the server has not "
                "added noise; with differential privacy, set dp_noise_by=devices"
            )
        if self.is_private and self.rows == "owners":
            raise ValueError(
                "rows=owners shows which classes and words a device has, without noise; with "
                "differential privacy, set rows=all"
            )

    @property
    def is_private(self) -> bool:
        """Whether the run adds noise for differential privacy."""
        return self.dp_clip > 0

    def to_dict(self) -> dict[str, object]:
        """Return the plain values, by name. A function is represented by its name."""
        values = {name: getattr(self, name) for name in option_parameters()}
        values |= {name: schedule_name(values[name]) for name in SCHEDULES}
        return values | {"link": link_name(self.link)}

    def for_rounds(self, rounds: int) -> RunOptions:
        """Return the options of a run of this length: its schedules end with it."""
        schedules: dict[str, Any] = {
            n: resolve_schedule(getattr(self, n), rounds) for n in SCHEDULES
        }
        return replace(self, **schedules)

    @property
    def recipe(self) -> dict[str, object]:
        """The training options that differ from plain descent, by name."""
        return self._changed(RECIPE)

    @property
    def link_options(self) -> dict[str, object]:
        """The options of the simulated network that are set, by name."""
        return self._changed(LINK_OPTIONS)

    def _changed(self, names: Sequence[str]) -> dict[str, object]:
        values, known = self.to_dict(), option_parameters()
        return {name: values[name] for name in names if values[name] != known[name].default}


def check_options(options: object) -> None:
    """Raise TypeError unless the object is a RunOptions."""
    if not isinstance(options, RunOptions):
        raise TypeError(f"options must be aquila.RunOptions(...), not {options!r}")


def _check_schedule(name: str, schedule: Schedule) -> None:
    if callable(schedule):
        return
    if not isinstance(schedule, str):
        raise ValueError(f"{name} must be text or a function round -> factor, not {schedule!r}")
    try:
        parse_schedule(schedule)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


@cache
def option_parameters() -> dict[str, Parameter]:
    """Return the fields that settings files and the command line can set, by name."""
    return parameters(RunOptions)
