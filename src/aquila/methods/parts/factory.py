"""How a method introduces itself: one decorator above its factory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from aquila.core.method import Method, Work
from aquila.core.parameter import Bounds, Parameter, check_arguments, parameters

Alpha = Annotated[float, Bounds("step size of the server, and of local steps", 1e-9, 1e9)]
WorkOption = Annotated[Work, "what a device computes: one gradient, or local epochs of descent"]
UploadBits = Annotated[int, Bounds("bits a coordinate of an upload", 2, 31)]
MAX_DENSITY = 0.7
DensityOption = Annotated[
    float, Bounds("share of the coordinates sent in a round", 1e-9, MAX_DENSITY)
]


@dataclass(frozen=True)
class MethodFactory:
    """A method as the catalogue lists it; call it with parameters to get the method itself."""

    name: str
    function: Callable[..., Method]
    paper: str
    lost_reply: str
    reconstruction: str

    @property
    def summary(self) -> str:
        """One line on what the method does."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters by name, with defaults and ranges."""
        return parameters(self.function)

    def __call__(self, **values: object) -> Method:
        """Return the method with the given parameters, or raise ValueError that lists them."""
        return self.function(**check_arguments(self.name, self.function, values))


def method_factory(
    *, paper: str, lost_reply: str, reconstruction: str = ""
) -> Callable[[Callable[..., Method]], MethodFactory]:
    """Make a catalogue entry of a factory.

    `lost_reply` says what it means for the method that a reply never arrives; `reconstruction`
    says what could not be read in the original text and was rebuilt from what is known of it.
    """

    def decorate(function: Callable[..., Method]) -> MethodFactory:
        return MethodFactory(function.__name__, function, paper, lost_reply, reconstruction)

    return decorate
