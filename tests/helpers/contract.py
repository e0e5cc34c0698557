"""The table of the method contract: one row per method with its parameters and its promises.

tests/methods/test_promises.py tests the promises, and tests/flower/test_every_method.py tests
`gap_after_restart`. A new method adds one row to ROWS.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

import aquila
from aquila.runtime.services import Services
from aquila.sim.network import Network
from helpers.problems import Ridge

WHERE = "ROWS in tests/helpers/contract.py"
ROUNDS = 50


@dataclass(frozen=True)
class Row:
    """What one method promises, and the parameters under which it does.

    Gaps are loss gaps to the optimum of a ridge regression with heterogeneous devices, divided by
    the gap before the first round. A smaller number is a stronger promise.

    Args:
        name: Name of the method.
        parameters: Parameters that differ from the defaults. `alpha` defaults to 0.5 / L.
        memory: Whether devices have memories whose average the server keeps.
        silent_on_zero: Whether a device with a zero gradient and no history skips the round.
        skip_scalars: Scalars that a skip carries.
        works: Values of the parameter `work`; empty if the method has no such parameter.
        gap: Largest gap after ROUNDS rounds.
        gap_with_losses: Largest gap after ROUNDS rounds if a fifth of the replies is lost.
        gap_after_restart: Largest gap after 20 rounds on Flower if a device restarts from its
            initial state.
        loss_ratio: Largest last loss ÷ first loss in 15 rounds of minibatches or local epochs.
        loss_ratio_with_widths: The same if two of five devices hold half of the model.
        max_overhead_bytes: Largest size of a reply minus its bits × coordinates.
        options: Run options that the method needs, such as a link model.
        numbers_per_device: Numbers that the server keeps per device.
        pads: Whether uploads of the smallest models take as many bytes as those of larger ones.
    """

    name: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    memory: bool = False
    silent_on_zero: bool = True
    skip_scalars: tuple[str, ...] = ()
    works: tuple[str, ...] = ("gradient", "epochs")
    gap: float = 1e-3
    gap_with_losses: float = 0.1
    gap_after_restart: float = 0.03
    loss_ratio: float = 0.7
    loss_ratio_with_widths: float = 0.7
    max_overhead_bytes: int = 64
    options: Mapping[str, object] = field(default_factory=dict)
    numbers_per_device: int = 0
    pads: bool = False


def memory_row(name: str, **promises: object) -> Row:
    """Return the row of a method with memory: lost replies leave a smaller gap."""
    return Row(name, **{"memory": True, "gap_with_losses": 1e-2, **promises})


def link_row(name: str, **promises: object) -> Row:
    """Return the row of a method that needs a link model."""
    return Row(name, **{"options": {"link": "lte", "fading": "rayleigh"}, **promises})


ROWS = (
    memory_row("aquila", parameters={"b_min": 2}),
    memory_row("aquila_peak", pads=True),
    memory_row("aquila_topk", parameters={"density": 0.2}),
    memory_row("aquila_dither"),
    Row("fedsgd", silent_on_zero=False, works=()),
    Row("fedavg", silent_on_zero=False, works=()),
    Row("qsgd"),
    Row("fedpaq", parameters={"bits": 6}, works=()),
    Row("adaquantfl", skip_scalars=("loss",)),
    Row("adaquantfl_levels", skip_scalars=("loss",), parameters={"s_0": 32}),
    Row("dadaquant", skip_scalars=("loss",), parameters={"q_min": 16, "q_max": 64, "phi": 5}),
    memory_row("lag"),
    memory_row("laq"),
    memory_row("ladaq", skip_scalars=("loss",)),
    # two bits leave an error that can silence a device, as in LAQ
    memory_row("aqg", parameters={"b_min": 4}),
    memory_row("lena", gap=5e-3),
    Row("lena_tables"),
    Row("marina", silent_on_zero=False),
    memory_row("ef21", parameters={"density": 0.5}),
    memory_row("ef21_sgdm", parameters={"density": 0.5, "eta": 0.3}),
    memory_row("diana", parameters={"bits": 6}),
    Row("eden", parameters={"bits": 6}),
    # the majority is biased if devices differ, so the gap does not vanish at any step size;
    # steps have a fixed length, so 20 rounds cover only part of the way
    Row(
        "signsgd",
        parameters={"alpha": 0.03},
        gap=0.35,
        gap_with_losses=0.35,
        gap_after_restart=0.5,
        loss_ratio=0.8,
        loss_ratio_with_widths=0.8,
    ),
    # without a memory, errors of devices that differ do not vanish
    Row("ef_signsgd", parameters={"alpha": 0.1}, gap=0.03, gap_after_restart=0.05, loss_ratio=0.8),
    Row("topk", parameters={"density": 0.5}, gap=0.02),
    Row("sparseloco", parameters={"density": 0.5, "chunk": 10}, works=(), gap=0.02),
    Row("feddq"),
    # errors are a fraction of gradients, which do not vanish on devices that differ
    Row("cdag_fl", gap=5e-3),
    Row("powersgd"),
    # a device with a faded link has two bits and no memory of its error
    link_row("bandwidth_adaptive", gap=0.03),
    link_row("channel_adaptive", numbers_per_device=1),
    link_row("noma_adaptive", gap=0.03),
    link_row("aqed", gap=0.02),
    link_row(
        "adagq", skip_scalars=("before", "after", "after_half"), gap=0.01, max_overhead_bytes=96
    ),
)

ONE_OF_EACH_KIND = (
    "fedavg", "aquila", "aquila_dither", "lena", "marina", "ef_signsgd", "powersgd", "dadaquant",
    "adagq",
)  # fmt: skip
"""Methods whose states, messages and orders differ in kind.

Tests use them for features that no method has code for, because equal kinds fail equally.
"""


def find_row(name: str) -> Row:
    """Return the row of a method; fail the test if the table has none."""
    found = {row.name: row for row in ROWS}
    if name not in found:
        pytest.fail(f"method {name!r} has no row: add Row({name!r}, ...) to {WHERE}")
    return found[name]


def check_limit(row: Row, field: str, measured: float) -> None:
    """Fail the test if a number is larger than the one in a row; the message has both."""
    promised = getattr(row, field)
    message = f"{row.name}: {field} is {measured:.3g}; its row promises at most {promised:.3g}"
    assert measured <= promised, message


def check_fact(row: Row, field: str, actual: object) -> None:
    """Fail the test if a method differs from what its row says; the message has both."""
    stated = getattr(row, field)
    assert actual == stated, f"{row.name}: {field} is {actual!r}; its row says {stated!r}"


def run_options(name: str, **given: object) -> aquila.RunOptions:
    """Return options of a run, with those that a method needs."""
    return aquila.RunOptions(**{**find_row(name).options, **given})


def services(name: str, devices: int) -> Services:
    """Return the services of a server session, with links if the method needs them."""
    network = Network.of(run_options(name), devices, seed=0)
    return Services(links=None if network is None else network.states)


def create(name: str, problem: Ridge, **parameters: object) -> aquila.Method:
    """Return a method with the parameters of its row, at 0.5 / L unless the row sets alpha."""
    alpha = 0.5 / problem.smoothness()
    return aquila.create(name, **{"alpha": alpha, **find_row(name).parameters, **parameters})
