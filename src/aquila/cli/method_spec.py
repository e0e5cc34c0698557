"""Methods on the command line: `name` or `name:parameter=value,parameter=value`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aquila.core.method import Method
    from aquila.sim.experiment import Experiment


@dataclass(frozen=True)
class MethodSpec:
    """A method with the parameters given by the user."""

    name: str
    parameters: dict[str, object]

    @property
    def label(self) -> str:
        """Name for tables and figures."""
        assignments = (f"{name}={value}" for name, value in self.parameters.items())
        return " ".join((self.name, *assignments))

    @property
    def file_name(self) -> str:
        """The label as a name for a folder."""
        return self.label.replace(" ", "_")

    def all_parameters(self, experiment: Experiment) -> dict[str, object]:
        """Return all parameters: the user's, else the experiment's, else the defaults."""
        from aquila.core.parameter import check_arguments
        from aquila.methods import METHODS

        given = {**experiment.methods.get(self.name, {}), **self.parameters}
        if self.name not in METHODS:
            return given
        entry, common = METHODS[self.name], experiment.setting.method_defaults
        values = {n: common.get(n, known.default) for n, known in entry.parameters.items()}
        return {**check_arguments(self.name, entry.function, {**values, **given})}

    def create(self, experiment: Experiment) -> Method:
        """Make the method; ValueError if it, its link or the local training is not possible."""
        from aquila.core.method import check_links
        from aquila.methods import create

        method = create(self.name, **self.all_parameters(experiment))
        check_links(method, available=experiment.setting.options.link != "")
        self.check_training(experiment)
        return method

    def work(self, experiment: Experiment) -> object:
        """Return what devices compute with this method: `gradient` or `epochs`."""
        from aquila.methods import METHODS

        return self.all_parameters(experiment).get("work", METHODS[self.name].fixed_work)

    def check_training(self, experiment: Experiment) -> None:
        """Raise ValueError if the local training needs local steps and the method takes none."""
        from aquila.methods import METHODS

        if self.work(experiment) == "gradient":
            chosen = "work" in METHODS[self.name].parameters
            remedy = "set work to epochs" if chosen else "leave the method out"
            experiment.setting.training.check_gradient(remedy, self.label)


def parse_method_spec(text: str) -> MethodSpec:
    """Read a method as given on the command line."""
    from aquila.core.parameter import split_spec

    return MethodSpec(*split_spec(text))
