"""Methods as arguments: a text such as `name:parameter=value`, or a `Method`."""

from aquila.core.method import Method, check_method, needs_links
from aquila.core.parameter import split_spec
from aquila.distributed.oracle import OTHER_MODELS
from aquila.methods import METHODS, create

NO_STEP_SIZE = "leave alpha out or set it to 1"


def make_method(method: str | Method, *, gradients: bool) -> Method:
    """Return a method with step size 1.

    Args:
        method: A text, or the result of `aquila.create`.
        gradients: Whether the method compresses gradients. Otherwise it compresses differences of
            models.
    """
    made = _from_text(method) if isinstance(method, str) else method
    check_method(made)
    if getattr(made.device, "needs_other_models", False):
        raise ValueError(f"{made.name}: {OTHER_MODELS}")
    if needs_links(made.server):
        raise ValueError(
            f"{made.name} needs a link model, which only the simulator has; choose another method"
        )
    if gradients and _trains_locally(made):
        raise ValueError(
            f"{made.name} trains locally, so it cannot compress single gradients; use it with "
            "aquila.distributed.Outer"
        )
    for half in (made.device, made.server):
        alpha = getattr(half, "alpha", 1.0)
        if alpha != 1:
            rate = "your optimizer sets the step size" if gradients else "use server_lr"
            raise ValueError(f"{made.name}: alpha is {alpha}, but {NO_STEP_SIZE}; {rate}")
    return made


def _from_text(text: str) -> Method:
    name, given = split_spec(text)
    if name not in METHODS:
        return create(name)  # raises an error that lists the names
    if "alpha" in METHODS[name].parameters:
        given.setdefault("alpha", 1.0)
    return create(name, **given)


def _trains_locally(method: Method) -> bool:
    fixed = METHODS[method.name].fixed_work if method.name in METHODS else "gradient"
    return getattr(method.device, "work", fixed) == "epochs"
