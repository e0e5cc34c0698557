"""A setting: everything about a run except its method, as plain values.

Fields are declared like parameters of a method, so settings files and command lines are checked the
same way. Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from aquila.core.parameter import Bounds, Parameter, check_values, parameters
from aquila.runtime.options import RunOptions, option_parameters
from aquila.training.local_training import LocalTraining, training_parameters

if TYPE_CHECKING:
    import torch
    from torch import nn

    from aquila.sim.problem import Problem
    from aquila.tasks.dataset import Dataset
    from aquila.tasks.partition import Partition

SYNTHETIC_PREFIX = "synthetic_"
RUN_FILE = "run.json"
"""File in the folder of a run with its method and setting."""
PYTHON = "Python"
"""Entry `started_from` of the run file of a run that no command can repeat."""
SPLIT_FILE = "split.json"
"""File in the folder of a run with the device of each sample."""


@dataclass(frozen=True)
class Setting:
    """Data, split, model, local work and length of a run. The defaults are those of the demo."""

    data: Annotated[str, "data set that `aquila data` lists, or synthetic_NAME"] = "digits"
    data_folder: Annotated[str, "folder of the data set; empty: search the default folders"] = ""
    samples: Annotated[int, Bounds("training samples to use; 0: all", 0)] = 0
    test_samples: Annotated[int, Bounds("test samples to use; 0: all", 0)] = 0
    model: Annotated[
        str, "model: mlp, cnn, resnet18, mobilenetv2, transformer or transformer_small"
    ] = "mlp"
    init_from: Annotated[
        str, "file with the initial weights, .safetensors or .pt; empty: random weights"
    ] = ""
    widths: Annotated[str, "model widths, spread evenly over the devices, such as 1,0.5"] = "1"
    devices: Annotated[int, Bounds("number of devices, M", 1)] = 10
    split: Annotated[
        str, "split of the data: iid, classes:2, dirichlet:0.5, unequal:1 or blocks:100"
    ] = "classes:2"
    mask_classes: Annotated[bool, "set logits of classes that a device has no samples of to 0"] = (
        False
    )
    rounds: Annotated[int, Bounds("number of rounds, K", 1)] = 200
    seed: Annotated[int, Bounds("seed of data, model and methods", 0, 2**53)] = 0
    alpha: Annotated[float, Bounds("step size of methods that set no alpha", 1e-9, 1e9)] = 0.5
    work: Annotated[
        Literal["gradient", "epochs"], "local work per round: one gradient, or local training"
    ] = "gradient"
    batch_size: Annotated[int, Bounds("samples per minibatch; 0: all samples of the device", 0)] = 0
    epochs: Annotated[int, Bounds("local epochs per round, if work is epochs", 1)] = 5
    augment: Annotated[bool, "crop and flip training images at random"] = False
    device: Annotated[Literal["cpu", "cuda"], "device that torch computes on"] = "cpu"
    precision: Annotated[
        Literal["float32", "tf32", "bf16"], "arithmetic of the layers on a GPU"
    ] = "float32"
    compile_model: Annotated[bool, "compile the model: slower start, faster rounds on a GPU"] = (
        False
    )
    deterministic: Annotated[bool, "use slower algorithms that give the same bits in every run"] = (
        False
    )
    training: LocalTraining = LocalTraining()
    options: RunOptions = RunOptions()

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Setting:
        """Make a setting from a flat mapping of its fields, its training's and its options'.

        ValueError names the wrong field and what is allowed.
        """
        checked: dict[str, Any] = check_values("the setting", setting_parameters(), values)
        training = {name: checked.pop(name) for name in training_parameters() if name in checked}
        options = {name: checked.pop(name) for name in option_parameters() if name in checked}
        return cls(**checked, training=LocalTraining(**training), options=RunOptions(**options))

    @property
    def method_defaults(self) -> dict[str, object]:
        """Parameters of every method that does not set its own."""
        return {"alpha": self.alpha, "work": self.work}

    def smoke(self) -> Setting:
        """Return a version that runs in seconds: two rounds on few synthetic samples."""
        widths = ",".join(str(width / 8) for width in self._widths())
        data = self.data if self._needs_no_folder else SYNTHETIC_PREFIX + self.data
        return replace(
            self, data=data, data_folder="", samples=200, rounds=2, devices=10, batch_size=10,
            epochs=1, widths=widths, device="cpu", precision="float32", compile_model=False,
            init_from="",
            training=replace(self.training, local_steps=min(self.training.local_steps, 1)),
        )  # fmt: skip

    def describe(self, parameters: int, works: Collection[object] = ()) -> str:
        """Return one line that describes a run, or runs of methods with these kinds of work."""
        recipe, rounds = self.training.describe(), f"{self.rounds} round"
        work = " or ".join(
            self._describe_work(kind) for kind in dict.fromkeys(works or [self.work])
        )
        work += f" ({recipe})" if recipe else ""
        batch = f"batches of {self.batch_size}" if self.batch_size else "full batches"
        return (
            f"{self.data}, {self.model} with {parameters:,} parameters, {self.devices} devices, "
            f"split {self.split}, widths {self.widths}, {work}, {batch}, "
            f"{rounds if self.rounds == 1 else rounds + 's'}, "
            f"alpha {self.alpha:g}, seed {self.seed}" + self._describe_options()
        )

    def _describe_work(self, work: object) -> str:
        steps = self.training.local_steps
        count, unit = (steps, "step") if steps else (self.epochs, "epoch")
        if work != "epochs":
            return "one gradient per round"
        return f"one local {unit}" if count == 1 else f"{count} local {unit}s"

    def _describe_options(self) -> str:
        """Return the options of server, downlink and network that differ from their defaults."""
        given = self.options.to_dict()
        downlink = {n: given[n] for n in ("downlink_error", "relay_uploads") if given[n]}
        changed = {**self.options.recipe, **downlink, **self.options.link_options}.items()
        values = {n: f"{v:g}" if isinstance(v, float) else v for n, v in changed}
        return "".join(f", {name.replace('_', ' ')} {value}" for name, value in values.items())

    def identity(self) -> str:
        """Return the fields that must stay the same for a run to be resumed, as text.

        The length of the run and the places of its files may change. The simulation itself checks
        the initial model and the options that matter.
        """
        may_change = {"rounds", "data_folder", "init_from"}
        fields = {**self._own_fields(), **self.training.changes()}.items()
        return "\n".join(f"{name} {value}" for name, value in fields if name not in may_change)

    def to_dict(self) -> dict[str, object]:
        """Return the fields of the setting, its training and its options as one flat mapping."""
        return {**self._own_fields(), **self.training.to_dict(), **self.options.to_dict()}

    def _own_fields(self) -> dict[str, object]:
        """Return the fields of the setting without those of its training and options."""
        return {name: getattr(self, name) for name in parameters(Setting)}

    @property
    def _needs_no_folder(self) -> bool:
        """Whether the data set is part of the package or generated."""
        return self.data.startswith((SYNTHETIC_PREFIX, "digits"))

    def problem(self) -> tuple[Problem, Partition]:
        """Load and split the data, and build the model; also return the samples of each device."""
        import torch

        from aquila.core.random import Key, Purpose
        from aquila.sim.hardware import configure_torch
        from aquila.sim.problem import ProblemOptions, problem
        from aquila.tasks.datasets import read_dataset
        from aquila.tasks.images import augment
        from aquila.tasks.partition import split
        from aquila.tasks.transformer import token_loss

        if self.data_folder and self._needs_no_folder:
            raise ValueError(f"{self.data} is not read from a folder; leave out data_folder")
        configure_torch(self.device, self.precision, self.deterministic)
        data = read_dataset(self.data, self.data_folder or None, self.seed)
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
            training=self.training,
            options=ProblemOptions(
                narrower=tuple(modules[1:]),
                groups=tuple(groups),
                classes=data.classes if self.mask_classes else None,
                augment=augment if self.augment else None,
                device=self.device,
                precision=self.precision,
                compile_model=self.compile_model,
            ),
        )
        return made, parts

    def model_size(self) -> int:
        """Return the number of trained parameters. Of the data sets, it reads only texts."""
        from aquila.tasks.datasets import read_dataset
        from aquila.tasks.synthetic import IMAGE_SHAPES

        synthetic = self.data in IMAGE_SHAPES  # the size depends on the shape of the images only
        name = SYNTHETIC_PREFIX + self.data if synthetic else self.data
        folder = None if synthetic else self.data_folder or None
        module = self._modules(read_dataset(name, folder, self.seed))[0][0]
        return sum(p.numel() for p in module.parameters() if p.requires_grad)

    def _modules(self, data: Dataset) -> tuple[list[nn.Module], list[int]]:
        """Build one model per width, widest first; also return the model number of each device."""
        import torch

        from aquila.sim.model_files import load_state, read_model
        from aquila.tasks.models import MODELS, build_model

        known = parameters(MODELS[self.model]) if self.model in MODELS else {}
        self._check_fits(data.train[0][0], set(known))
        options = {name: value for name, value in _model_options(data).items() if name in known}
        given = self._widths()
        widths = sorted(set(given), reverse=True)
        torch.manual_seed(self.seed)
        modules = [build_model(self.model, width, **options) for width in widths]
        if self.init_from:
            load_state(modules[0], read_model(self.init_from), self.init_from)
        device_widths = [given[m * len(given) // self.devices] for m in range(self.devices)]
        return modules, [widths.index(width) for width in device_widths]

    def _check_fits(self, sample: torch.Tensor, options: set[str]) -> None:
        """Raise ValueError if the model cannot read the data."""
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


def setting_parameters() -> dict[str, Parameter]:
    """Return the fields that a settings file and the command line can set, by name."""
    return {**parameters(Setting), **training_parameters(), **option_parameters()}


def _model_options(data: Dataset) -> dict[str, object]:
    """Return the options of a model that follow from the data set."""
    sample: torch.Tensor = data.train[0][0]
    options: dict[str, object] = {"classes": data.classes, "inputs": sample.numel()}
    if sample.ndim == 3:
        options |= {"channels": sample.shape[0], "size": sample.shape[-1]}
    if not sample.is_floating_point():
        options |= {"vocabulary": data.classes, "length": sample.shape[0]}
    return options
