"""AQUILA: communication-efficient federated learning.

    import aquila
    method = aquila.create("aquila", alpha=0.1, beta=0.25)
    run = aquila.simulate(method, theta0, devices, rounds=50, seed=0)

Names load on first use, so `import aquila` does not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aquila.version import __version__

if TYPE_CHECKING:
    from aquila import tasks as tasks
    from aquila.advice.advise import advise as advise
    from aquila.advice.situation import Situation as Situation
    from aquila.core.fleet import Fleet as Fleet
    from aquila.core.link import DeviceLink as DeviceLink
    from aquila.core.method import Method as Method
    from aquila.core.packet import WireError as WireError
    from aquila.methods import METHODS as METHODS
    from aquila.methods import create as create
    from aquila.report.run_callbacks import progress as progress
    from aquila.report.run_callbacks import trackers as trackers
    from aquila.runtime.link_model import LinkModel as LinkModel
    from aquila.runtime.nan_guard import NonFiniteError as NonFiniteError
    from aquila.runtime.options import RunOptions as RunOptions
    from aquila.sim.loop import Simulation as Simulation
    from aquila.sim.problem import Problem as Problem
    from aquila.sim.problem import ProblemOptions as ProblemOptions
    from aquila.sim.problem import problem as problem
    from aquila.sim.records import Record as Record
    from aquila.sim.simulate import Run as Run
    from aquila.sim.simulate import simulate as simulate
    from aquila.training.local_training import LocalTraining as LocalTraining
    from aquila.training.splits import split as split

_MODULE_OF_NAME = {
    "advise": "aquila.advice.advise",
    "Situation": "aquila.advice.situation",
    "METHODS": "aquila.methods",
    "create": "aquila.methods",
    "Fleet": "aquila.core.fleet",
    "DeviceLink": "aquila.core.link",
    "Method": "aquila.core.method",
    "WireError": "aquila.core.packet",
    "progress": "aquila.report.run_callbacks",
    "trackers": "aquila.report.run_callbacks",
    "LinkModel": "aquila.runtime.link_model",
    "NonFiniteError": "aquila.runtime.nan_guard",
    "RunOptions": "aquila.runtime.options",
    "LocalTraining": "aquila.training.local_training",
    "Simulation": "aquila.sim.loop",
    "Problem": "aquila.sim.problem",
    "ProblemOptions": "aquila.sim.problem",
    "problem": "aquila.sim.problem",
    "Record": "aquila.sim.records",
    "Run": "aquila.sim.simulate",
    "simulate": "aquila.sim.simulate",
    "split": "aquila.training.splits",
}

__all__ = ["__version__", "tasks", *_MODULE_OF_NAME]


def __getattr__(name: str) -> Any:
    if name == "tasks":
        return import_module("aquila.tasks")
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module 'aquila' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF_NAME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
