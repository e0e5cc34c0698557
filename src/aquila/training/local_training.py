"""How a device trains its local model: optimizer, regularization and length of a turn.

Annotated fields are plain values. Settings files and the command line read them by these names.
Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from aquila.core.function_name import function_name
from aquila.core.parameter import Bounds, Parameter, parameters

BuiltinOptimizer = Literal["sgd", "adam", "adamw"]

if TYPE_CHECKING:
    import torch

    OptimizerFactory = Callable[..., torch.optim.Optimizer]
    OptimizerChoice = BuiltinOptimizer | OptimizerFactory
else:
    OptimizerFactory = Callable[..., Any]
    OptimizerChoice = BuiltinOptimizer  # a settings file cannot hold a function


@dataclass(frozen=True, repr=False)
class LocalTraining:
    """The local training of devices. The defaults are plain SGD.

    The step size is the method's alpha. The optimizer starts without state in every round.

    In Python, `local_optimizer` can also be a function that is called as `factory(params, lr=...)`
    and returns a `torch.optim.Optimizer`. A class such as `torch.optim.RMSprop` is such a function.
    `params` are the trainable parameters, and `lr` is the step size of the turn.
    """

    local_optimizer: Annotated[OptimizerChoice, "optimizer of local training"] = "sgd"
    momentum: Annotated[float, Bounds("momentum of local SGD", 0, 1)] = 0.0
    nesterov: Annotated[bool, "use Nesterov momentum in local SGD"] = False
    weight_decay: Annotated[
        float, Bounds("weight decay of local steps: an L2 penalty, decoupled in adamw", 0)
    ] = 0.0
    clip: Annotated[float, Bounds("largest norm of a minibatch gradient; 0: no limit", 0)] = 0.0
    local_steps: Annotated[
        int, Bounds("local minibatch steps per round, instead of epochs; 0: epochs", 0)
    ] = 0
    prox: Annotated[float, Bounds("FedProx's mu, the weight of the proximal term", 0)] = 0.0

    def __post_init__(self) -> None:
        known = training_parameters()
        factory = not isinstance(self.local_optimizer, str)
        if factory and not callable(self.local_optimizer):
            raise TypeError(
                f"local_optimizer must be {known['local_optimizer']}, or a function (params, lr) "
                f"-> torch.optim.Optimizer, not a {type(self.local_optimizer).__name__}"
            )
        for name, parameter in known.items():
            if not (factory and name == "local_optimizer"):
                object.__setattr__(self, name, parameter.check(getattr(self, name)))
        self._check_combination(factory)

    def _check_combination(self, factory: bool) -> None:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs momentum > 0")
        if self.momentum and self.local_optimizer != "sgd":
            raise ValueError(
                "momentum belongs to local_optimizer sgd"
                + ("; set it in your own optimizer" if factory else f", not {self.optimizer_name}")
            )
        if self.weight_decay and factory:
            raise ValueError("weight_decay has no effect on your own optimizer; set it there")

    @property
    def optimizer_name(self) -> str:
        """Name of the optimizer; the qualified name of a function."""
        chosen = self.local_optimizer
        return chosen if isinstance(chosen, str) else function_name(chosen)

    def check_gradient(self, remedy: str, method: str = "") -> None:
        """Raise ValueError if devices that send gradients cannot follow this training.

        A gradient has no local optimizer. Weight decay and clipping apply to it, and the proximal
        term is zero at the global model.
        """
        if self.local_optimizer == "sgd" and not self.momentum and not self.local_steps:
            return
        unusable = [name for name in ("momentum", "local_steps") if getattr(self, name)]
        if self.local_optimizer != "sgd":
            unusable.insert(0, f"local_optimizer {self.optimizer_name}")
        if unusable:
            name = f"{method}: " if method else ""
            raise ValueError(
                f"{name}{' and '.join(unusable)} cannot apply to a gradient, which takes no local "
                f"steps; {remedy}"
            )

    def changes(self) -> dict[str, object]:
        """Return the values that differ from plain SGD, by name."""
        plain = LocalTraining().to_dict()
        return {name: value for name, value in self.to_dict().items() if value != plain[name]}

    def describe(self) -> str:
        """Return the optimizer and its options in a few words; empty for plain SGD."""
        changed = {name: v for name, v in self.changes().items() if name != "local_steps"}
        words = (
            name if value is True else f"{name} {value:g}" if isinstance(value, float)
            else f"{name} {value}" for name, value in changed.items()
        )  # fmt: skip
        return ", ".join(words).replace("_", " ")

    def to_dict(self) -> dict[str, object]:
        """Return the values, by name; a function is given by its qualified name."""
        values = {name: getattr(self, name) for name in training_parameters()}
        return {**values, "local_optimizer": self.optimizer_name}

    def __repr__(self) -> str:
        changed = ", ".join(f"{name}={value!r}" for name, value in self.changes().items())
        return f"LocalTraining({changed})"


@cache
def training_parameters() -> dict[str, Parameter]:
    """Return the fields that settings files and the command line can set, by name."""
    return parameters(LocalTraining)
