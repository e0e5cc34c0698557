"""The decorator that turns a function into a catalogue entry for a method."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from aquila.core.method import Method, Work
from aquila.core.parameter import Bounds, Parameter, check_arguments, parameters

Alpha = Annotated[float, Bounds("step size of the server and of local steps", 1e-9, 1e9)]
WorkOption = Annotated[Work, "what a device computes: a gradient, or local epochs of descent"]
UploadBits = Annotated[int, Bounds("bits per coordinate of an upload", 2, 31)]
MAX_DENSITY = 0.7
"""Up to this density the error bound of the quantizer `sparse` holds."""
DensityOption = Annotated[
    float, Bounds("fraction of the coordinates sent per round", 1e-9, MAX_DENSITY)
]


@dataclass(frozen=True)
class MethodFactory:
    """Catalogue entry of a method. Call it with parameters to create the method."""

    name: str
    function: Callable[..., Method]
    paper: str
    lost_reply: str
    reconstruction: str
    fixed_work: Work = "gradient"
    """What a device computes if the method has no parameter `work`."""

    @property
    def summary(self) -> str:
        """First line of the factory's docstring: what the method does."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters by name, with their defaults and ranges."""
        return parameters(self.function)

    def __call__(self, **values: object) -> Method:
        """Return the method with these parameters; an invalid one raises ValueError."""
        return self.function(**check_arguments(self.name, self.function, values))


def method_factory(
    *, paper: str, lost_reply: str, reconstruction: str = "", fixed_work: Work = "gradient"
) -> Callable[[Callable[..., Method]], MethodFactory]:
    """Turn a factory function into a catalogue entry.

    Args:
        paper: The paper that introduced the method.
        lost_reply: What happens if a reply never arrives. A full sentence.
        reconstruction: What the original text does not specify and how it was filled in.
        fixed_work: What a device computes if the method has no parameter `work`.
    """

    def decorate(function: Callable[..., Method]) -> MethodFactory:
        return MethodFactory(
            function.__name__, function, paper, lost_reply, reconstruction, fixed_work
        )

    return decorate
