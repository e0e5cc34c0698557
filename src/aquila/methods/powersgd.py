"""PowerSGD: gradients as products of two thin matrices (Vogels et al. 2019, arXiv 1905.13727).

A device adds its gradient to the error that it has not sent yet. It reshapes each tensor of the sum
to a matrix M of n rows and takes one step of power iteration from its last factor Q:

    P = orthonormal columns of M Q,    Q = Mᵀ P,    sent: P Qᵀ,    error: M - P Qᵀ

It sends r (n + m) floats instead of n m. Vectors, and matrices for which factors are not shorter,
are sent as they are. The first Q is random.

The paper averages P over all devices before it is made orthonormal, and then Q, so that all
devices share the factors. That takes two exchanges per round. A round has one exchange here. Each
device sends the P and Q of its own matrix, and the server averages the products P Qᵀ. The average
has a rank up to r times the number of devices. The paper adds momentum after the compression; here
the server optimizer of the run can do that.

With a constant step size the method does not reach the optimum if the devices' gradients differ
there: the errors do not vanish.
"""

from dataclasses import dataclass
from typing import Annotated

import torch

from aquila.core.envelope import require
from aquila.core.method import Method, Oracle, Turn, Work, local_work, theta_of
from aquila.core.packet import Dense, Packet
from aquila.core.parameter import Bounds
from aquila.core.random import Key
from aquila.core.tensors import Shapes, checksum_scalars, shapes_of, split_tensors
from aquila.core.vector import Vector, relative_norm, squared_norm
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.mean import MeanServer


def matrix_size(shape: torch.Size, rank: int) -> tuple[int, int] | None:
    """Return rows and columns of a tensor that is sent as factors, None if it is sent as it is."""
    if len(shape) < 2 or not shape.numel():
        return None
    rows, columns = shape[0], shape.numel() // shape[0]
    return (rows, columns) if rank * (rows + columns) < rows * columns else None


def sent_size(shape: torch.Size, rank: int) -> int:
    """Return the number of floats that are sent for a tensor."""
    size = matrix_size(shape, rank)
    return shape.numel() if size is None else rank * sum(size)


@dataclass(frozen=True, eq=False)
class Factors:
    """The floats of an upload: for each tensor P and Q, or the tensor itself."""

    values: Vector
    rank: int
    shapes: Shapes

    @property
    def dimension(self) -> int:
        """Number of floats."""
        return self.values.numel()

    @property
    def bits(self) -> int:
        """Bits per float."""
        return self.values.element_size() * 8

    def decode(self) -> Vector:
        """Return the vector of the model, with P Qᵀ for each matrix."""
        parts = torch.split(self.values, [sent_size(shape, self.rank) for shape in self.shapes])
        pairs = zip(parts, self.shapes, strict=True)
        return torch.cat([self._tensor(part, shape) for part, shape in pairs])

    def _tensor(self, part: Vector, shape: torch.Size) -> Vector:
        size = matrix_size(shape, self.rank)
        if size is None:
            return part
        left, right = torch.split(part, [self.rank * length for length in size])
        return (left.view(-1, self.rank) @ right.view(-1, self.rank).T).reshape(-1)


@dataclass(frozen=True)
class FactorReader:
    """Reads `Factors`."""

    rank: int

    def dimensions(self, shapes: Shapes) -> range:
        """Return the number of floats of an upload."""
        size = sum(sent_size(shape, self.rank) for shape in shapes)
        return range(size, size + 1)

    def read(self, reply: Packet, shapes: Shapes) -> Factors:
        """Return the factors of a reply; raise WireError if it has codes, or huge factors."""
        vector = reply.vector
        require(isinstance(vector, Dense), "the upload must hold floats")
        assert isinstance(vector, Dense)
        factors = Factors(vector.values, self.rank, shapes)
        require(bool(factors.decode().isfinite().all()), "a product of factors is not finite")
        return factors


@dataclass(frozen=True, eq=False)
class PowerSgdState:
    """State of a device: the error that it has not sent, and the factors Q of the last round.

    The factor of a matrix is at the first coordinates of the matrix. The others are zero.
    """

    e: Vector
    q: Vector


def orthonormalize(columns: torch.Tensor) -> torch.Tensor:
    """Return orthonormal columns with the same span; a zero column stays zero."""
    result = columns.double()
    for i in range(result.shape[1]):
        earlier = result[:, :i]
        column = result[:, i] - earlier @ (earlier.T @ result[:, i])
        norm = torch.linalg.vector_norm(column)
        result[:, i] = torch.where(norm > 0, column / norm, 0)
    return result.to(columns.dtype)


def start_factor(last: torch.Tensor, key: Key) -> torch.Tensor:
    """Return the last factor with columns of maximum 1; a zero column is drawn at random."""
    largest = last.abs().amax(0)
    drawn = torch.from_numpy(key.numpy().standard_normal(tuple(last.shape))).to(last)
    return torch.where(largest > 0, last / largest, drawn)


@dataclass(frozen=True)
class PowerSgdDevice:
    """Sends the factors of its accumulated error."""

    alpha: float
    rank: int
    work: Work

    def init(self, like: Vector) -> PowerSgdState:
        """Start with e = 0 and no factors."""
        return PowerSgdState(torch.zeros_like(like), torch.zeros_like(like))

    def step(
        self, state: PowerSgdState, order: Packet, oracle: Oracle, key: Key
    ) -> Turn[PowerSgdState]:
        """Send the factors of e + g and keep the rest."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        accumulated = state.e + gradient
        if not bool(accumulated.any()):
            return Turn(state, Packet(order.round), {"loss": loss})
        shapes, q = shapes_of(oracle, gradient), torch.zeros_like(state.q)
        tensors = [split_tensors(vector, shapes) for vector in (accumulated, state.q, q)]
        sent = []
        for index, (part, last, new, shape) in enumerate(zip(*tensors, shapes, strict=True)):
            size = matrix_size(shape, self.rank)
            sent.append(part if size is None else self._factors(part, size, last, new, key, index))
        factors = Factors(torch.cat(sent), self.rank, shapes)
        residual = accumulated - factors.decode()
        ratio = relative_norm(squared_norm(residual), squared_norm(accumulated))
        reply = Packet(order.round, Dense(factors.values), checksum_scalars(shapes))
        return Turn(PowerSgdState(residual, q), reply, {"loss": loss, "error_ratio": ratio})

    def _factors(
        self, part: Vector, size: tuple[int, int], last: Vector, new: Vector, key: Key, index: int
    ) -> Vector:
        """Return P and Q of a matrix, and write Q to the new state."""
        matrix, length = part.view(size), size[1] * self.rank
        start = start_factor(last[:length].view(-1, self.rank), key.child(index))
        left = orthonormalize(matrix @ start)
        right = (matrix.T @ left).reshape(-1)
        new[:length] = right
        return torch.cat((left.reshape(-1), right))


@method_factory(
    paper="Vogels, Karimireddy and Jaggi, PowerSGD: Practical Low-Rank Gradient Compression for "
    "Distributed Optimization, 2019, arXiv 1905.13727",
    lost_reply="The server averages the uploads that arrived. The device rolls its error and its "
    "factors back, without the gradient of that round.",
    reconstruction="Devices do not share factors, because a round has one exchange: each sends the "
    "factors of its own matrices, and the server averages the products.",
)
def powersgd(
    alpha: Alpha = 0.1,
    rank: Annotated[int, Bounds("rank of the matrices that are sent, r", 1, 256)] = 2,
    work: WorkOption = "gradient",
) -> Method:
    """Low-rank factors of the accumulated error of each matrix, as floats."""
    return Method(
        "powersgd", PowerSgdDevice(alpha, rank, work), MeanServer(alpha), FactorReader(rank)
    )
