"""The catalogue of methods, one file per method."""

from aquila.core.method import Method
from aquila.core.parameter import spelling_hint
from aquila.methods.adaquantfl import adaquantfl, adaquantfl_levels
from aquila.methods.aquila import aquila
from aquila.methods.aquila_dither import aquila_dither
from aquila.methods.aquila_topk import aquila_topk
from aquila.methods.diana import diana
from aquila.methods.eden import eden
from aquila.methods.ef21 import ef21
from aquila.methods.fedavg import fedavg
from aquila.methods.fedsgd import fedsgd
from aquila.methods.ladaq import ladaq
from aquila.methods.lag import lag
from aquila.methods.laq import laq
from aquila.methods.lena import lena, lena_tables
from aquila.methods.marina import marina
from aquila.methods.parts.factory import MethodFactory
from aquila.methods.qsgd import qsgd
from aquila.methods.signsgd import signsgd
from aquila.methods.topk import topk

METHODS: dict[str, MethodFactory] = {
    entry.name: entry
    for entry in (
        aquila,
        aquila_topk,
        aquila_dither,
        fedsgd,
        fedavg,
        qsgd,
        adaquantfl,
        adaquantfl_levels,
        lag,
        laq,
        ladaq,
        lena,
        lena_tables,
        marina,
        ef21,
        diana,
        eden,
        signsgd,
        topk,
    )
}


def create(name: str, /, **parameters: object) -> Method:
    """Return a method by name.

    An unknown name or an invalid parameter raises a ValueError that lists what is allowed.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a text such as 'aquila', not {type(name).__name__}")
    if name not in METHODS:
        raise ValueError(f"there is no method {name!r}{spelling_hint(name, METHODS)}")
    return METHODS[name](**parameters)
