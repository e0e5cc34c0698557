"""A setting: everything about a run but its method, as data.

Its fields are declared like the parameters of a method, so that files and command lines are
checked alike. Importing this module does not import torch.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from aquila.core.parameter import Bounds, check_arguments

if TYPE_CHECKING:
    import torch
    from torch import nn

    from aquila.sim.link import Link
    from aquila.sim.module import Problem
    from aquila.tasks.dataset import Dataset
    from aquila.tasks.partition import Partition

SYNTHETIC_PREFIX = "synthetic_"
RUN_FILE = "run.json"
"""File in the folder of a run that tells its method and setting."""
SPLIT_FILE = "split.json"
"""File in the folder of a run that tells which device has which sample."""


@dataclass(frozen=True)
class Setting:
    """Data, split, model, local work, link and length of a run. The defaults are the demo's."""

    data: Annotated[str, "data set of `aquila data`, or synthetic_ and its name"] = "digits"
    data_folder: Annotated[str, "folder of the data set; empty: the usual places"] = ""
    samples: Annotated[int, Bounds("training samples used; 0 for all", 0)] = 0
    test_samples: Annotated[int, Bounds("test samples used; 0 for all", 0)] = 0
    model: Annotated[str, "mlp, cnn, resnet18, mobilenetv2 or transformer(_small)"] = "mlp"
    widths: Annotated[str, "widths of the devices' models, shared out evenly: 1,0.5"] = "1"
    devices: Annotated[int, Bounds("number of devices, M", 1)] = 10
    split: Annotated[str, "iid, classes:2, dirichlet:0.5, unequal:1 or blocks:100"] = "classes:2"
    mask_classes: Annotated[bool, "zero the logits of classes a device has not seen"] = False
    rounds: Annotated[int, Bounds("number of rounds, K", 1)] = 200
    seed: Annotated[int, Bounds("seed of data, model and methods", 0, 2**53)] = 0
    alpha: Annotated[float, Bounds("step size of methods not given their own", 1e-9, 1e9)] = 0.5
    work: Annotated[Literal["gradient", "epochs"], "one gradient a round, or local epochs"] = (
        "gradient"
    )
    batch_size: Annotated[int, Bounds("samples in a minibatch; 0 for all of a device's", 0)] = 0
    epochs: Annotated[int, Bounds("local epochs a round, where devices train", 1)] = 5
    augment: Annotated[bool, "crop and flip training images at random"] = False
    uplink_loss: Annotated[float, Bounds("share of replies lost on the way", 0, 0.99)] = 0.0
    participation: Annotated[
        float, Bounds("share of the devices in a round, drawn anew each", above=0, high=1)
    ] = 1.0
    downlink_error: Annotated[
        float, Bounds("relative error of models sent as differences; 0: whole models", 0, 0.99)
    ] = 0.0
    on_nan: Annotated[
        Literal["stop", "skip"], "on a NaN gradient: stop the run, or let the device sit out"
    ] = "stop"
    evaluate_every: Annotated[int, Bounds("rounds between two evaluations", 1)] = 1
    checkpoint_every: Annotated[
        int, Bounds("rounds between two checkpoints; 0: only on an interrupt", 0)
    ] = 10
    device: Annotated[Literal["cpu", "cuda"], "where to compute"] = "cpu"
    workers: Annotated[int, Bounds("devices side by side; 0 for as many as pay", 0)] = 0
    executor: Annotated[
        Literal["auto", "sequential", "batched", "threads"], "how devices get their turns"
    ] = "auto"
    state_memory: Annotated[
        int, Bounds("MiB for the devices' states, else on disk; 0: half the memory", 0)
    ] = 0
    precision: Annotated[
        Literal["float32", "tf32", "bf16"], "arithmetic of the layers on a GPU"
    ] = "float32"
    compile_model: Annotated[bool, "compile the model: slower to start, faster rounds on a GPU"] = (
        False
    )
    deterministic: Annotated[bool, "give up speed for the same bits in every run"] = False

    @classmethod
    def of(cls, values: dict[str, object]) -> Setting:
        """Make a setting of plain values, or raise ValueError that says what is allowed."""
        checked: dict[str, Any] = check_arguments("the setting", cls, values)
        return cls(**checked)

    @property
    def method_defaults(self) -> dict[str, object]:
        """Parameters that every method gets unless it was given its own."""
        return {"alpha": self.alpha, "work": self.work}

    def smoke(self) -> Setting:
        """Return the same setting cut down to seconds: two rounds on a few made-up samples."""
        eighth = ",".join(str(width / 8) for width in self._widths())
        data = (
            self.data
            if self.data.startswith((SYNTHETIC_PREFIX, "digits"))
            else SYNTHETIC_PREFIX + self.data
        )
        return replace(
            self, data=data, samples=200, rounds=2, devices=10, batch_size=10, epochs=1,
            widths=eighth, device="cpu", precision="float32",
        )  # fmt: skip

    def describe(self, parameters: int) -> str:
        """Return one line on what is being trained."""
        work = f"{self.epochs} local epochs" if self.work == "epochs" else "one gradient a round"
        batch = f"batches of {self.batch_size}" if self.batch_size else "full batches"
        return (
            f"{self.data}, {self.model} with {parameters:,} parameters, {self.devices} devices, "
            f"split {self.split}, widths {self.widths}, {work}, {batch}, {self.rounds} rounds, "
            f"alpha {self.alpha:g}, seed {self.seed}"
        )

    def link(self) -> Link:
        """Return the link with its losses."""
        from aquila.sim.link import Link

        return Link(uplink_loss=self.uplink_loss)

    def identity(self) -> str:
        """Return what must stay the same for a run to be resumed; its length and place need not.

        `participation` and `downlink_error` must too;
        the simulation itself takes care of those.
        """
        free = {"rounds", "data_folder", "evaluate_every", "participation", "downlink_error"}
        free |= {"workers", "executor", "state_memory", "checkpoint_every"}
        return "\n".join(f"{n} {value}" for n, value in asdict(self).items() if n not in free)

    def to_dict(self) -> dict[str, object]:
        """Return the setting as plain values."""
        return asdict(self)

    def problem(self) -> tuple[Problem, Partition]:
        """Load the data, share it out and build the model; return also who got which sample."""
        import torch

        from aquila.core.random import Key, Purpose
        from aquila.sim.hardware import configure_torch
        from aquila.sim.module import problem
        from aquila.tasks.datasets import load_dataset
        from aquila.tasks.images import augment
        from aquila.tasks.partition import split
        from aquila.tasks.transformer import token_loss

        configure_torch(self.device, self.precision, self.deterministic)
        data = load_dataset(self.data, self.data_folder or None, self.seed)
        x, y = (part[: self.samples or None] for part in data.train)
        test_x, test_y = (part[: self.test_samples or None] for part in data.test)
        data = replace(data, train=(x, y), test=(test_x, test_y))
        parts = split(self.split, data, self.devices, Key((self.seed, Purpose.SPLIT)))
        modules, groups = self._modules(data)
        made = problem(
            modules[0],
            [(x[part], y[part]) for part in parts],
            data.test,
            loss=torch.nn.functional.cross_entropy if y.ndim == 1 else token_loss,
            batch_size=self.batch_size or None,
            epochs=self.epochs,
            narrower=modules[1:],
            groups=groups,
            classes=data.classes if self.mask_classes else None,
            augment=augment if self.augment else None,
            device=self.device,
            precision=self.precision,
            compile_model=self.compile_model,
        )
        return made, parts

    def _modules(self, data: Dataset) -> tuple[list[nn.Module], list[int]]:
        """Build one model a width, widest first, and say which of them each device trains."""
        import torch

        from aquila.core.parameter import parameters
        from aquila.tasks.models import MODELS, build_model

        known = parameters(MODELS[self.model]) if self.model in MODELS else {}
        self._check_fits(data.train[0][0], set(known))
        options = {name: value for name, value in _model_options(data).items() if name in known}
        given = self._widths()
        widths = sorted(set(given), reverse=True)
        torch.manual_seed(self.seed)
        modules = [build_model(self.model, width, **options) for width in widths]
        device_widths = [given[m * len(given) // self.devices] for m in range(self.devices)]
        return modules, [widths.index(width) for width in device_widths]

    def _check_fits(self, sample: torch.Tensor, options: set[str]) -> None:
        """Refuse a model that cannot read the data."""
        images, texts = sample.ndim == 3, not sample.is_floating_point()
        has = "images" if images else "texts" if texts else f"vectors of {sample.numel()} numbers"
        if ("channels" in options or self.augment) and not images:
            what = self.model if "channels" in options else "augment"
            raise ValueError(f"{what} needs images, but {self.data} holds {has}")
        if ("vocabulary" in options) != texts:
            needs = "texts" if "vocabulary" in options else "numbers"
            raise ValueError(f"{self.model} needs {needs}, but {self.data} holds {has}")

    def _widths(self) -> list[float]:
        try:
            return [float(width) for width in self.widths.split(",")]
        except ValueError:
            raise ValueError(f"widths must be numbers like 1,0.5, not {self.widths!r}") from None


def _model_options(data: Dataset) -> dict[str, object]:
    """What a data set says about the model it needs."""
    sample: torch.Tensor = data.train[0][0]
    options: dict[str, object] = {"classes": data.classes, "inputs": sample.numel()}
    if sample.ndim == 3:
        options |= {"channels": sample.shape[0], "size": sample.shape[-1]}
    if not sample.is_floating_point():
        options |= {"vocabulary": data.classes, "length": sample.shape[0]}
    return options
