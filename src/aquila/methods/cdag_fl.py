"""CDAG-FL: updates with a codebook per tensor (Li et al. 2023, Electronics 12:3712).

The method clusters the numbers of each tensor by k-means. A device sends the codebook, k floats,
and for each coordinate the number of its cluster. This file has the compression only. The paper
stores models in a ledger, a directed acyclic graph, which a server that averages does not need.

A frame holds codes on a uniform grid. The codebooks therefore travel as the first codes of the
vector, as their bits cut into codes: first k per tensor, then the centroids. They take 4 bytes per
float32, as in the paper's count of d ⌈log₂ k⌉ + 32 k bits per tensor. All codes of a frame have the
width of the largest k, and the coder removes unused bits.
"""

from dataclasses import dataclass
from typing import Annotated

import torch

from aquila.core.envelope import require
from aquila.core.method import Method
from aquila.core.packet import Codes, Packet
from aquila.core.parameter import Bounds
from aquila.core.tensor_grid import MAX_DIGITS, codes_of, prepend_floats
from aquila.core.tensors import (
    Shapes,
    digits_per_float,
    from_digits,
    per_coordinate,
    split_tensors,
    total_size,
)
from aquila.core.vector import Vector
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.mean import MeanServer
from aquila.methods.parts.tensor_update import TensorUpdateDevice

CLUSTERS = (2, 4, 8, 16)
ITERATIONS = 10
"""Iterations of k-means; later ones hardly change the centroids."""


@dataclass(frozen=True, eq=False)
class Codebooks:
    """A vector whose coordinate i of tensor t is centroid `codes[i]` of the tensor's codebook.

    `clusters` is the size of each codebook. `centroids` has the codebooks one after another.
    """

    codes: torch.Tensor
    bits: int
    clusters: Vector
    centroids: Vector
    shapes: Shapes

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return self.codes.numel()

    def decode(self) -> Vector:
        """Return the centroid of each coordinate."""
        first = self.clusters.cumsum(0) - self.clusters
        return self.centroids[self.codes.long() + per_coordinate(first, self.shapes).long()]

    def to_codes(self) -> Codes:
        """Return the codes that a frame carries: the codebooks, then the coordinates."""
        return prepend_floats(torch.cat((self.clusters, self.centroids)), self.codes, self.bits)


@dataclass(frozen=True)
class CodebookReader:
    """Reads `Codebooks`."""

    def dimensions(self, shapes: Shapes) -> range:
        """Return the coordinates of the model plus the codes of the smallest to largest books."""
        size, tensors = total_size(shapes), len(shapes)
        smallest, largest = tensors * (1 + CLUSTERS[0]), tensors * (1 + CLUSTERS[-1])
        return range(size + smallest, size + largest * MAX_DIGITS + 1)

    def read(self, reply: Packet, shapes: Shapes) -> Codebooks:
        """Return the codebooks and codes of a reply; raise WireError if they are invalid."""
        sent, size = codes_of(reply), total_size(shapes)
        codes, digits = sent.codes[sent.dimension - size :], digits_per_float(sent.low, sent.bits)
        header = sent.codes[: sent.dimension - size]
        require(len(header) % digits == 0, "the codebooks of the upload are cut short")
        floats = from_digits(header, sent.bits, sent.low)
        clusters, centroids = floats[: len(shapes)], floats[len(shapes) :]
        valid = all(k in CLUSTERS for k in clusters.tolist())
        require(valid, "a codebook of the upload must have 2, 4, 8 or 16 centroids")
        require(len(centroids) == int(clusters.sum()), "the codebooks of the upload are cut short")
        require(bool(centroids.isfinite().all()), "a centroid of the upload is not finite")
        used = bool((codes < per_coordinate(clusters, shapes)).all())
        require(used, "a code of the upload is not in the codebook of its tensor")
        return Codebooks(codes, sent.bits, clusters, centroids, shapes)


def k_means(ordered: Vector, k: int) -> Vector:
    """Return k centroids of sorted float64 numbers: Lloyd's algorithm from equal distances."""
    sums = torch.cat((ordered.new_zeros(1), ordered.cumsum(0)))
    positions = torch.arange(k, device=ordered.device, dtype=torch.float64) / (k - 1)
    centroids = ordered[0] + (ordered[-1] - ordered[0]) * positions
    for _ in range(ITERATIONS):
        ends = torch.searchsorted(ordered, (centroids[1:] + centroids[:-1]) / 2, right=True)
        bounds = torch.cat((ends.new_zeros(1), ends, ends.new_tensor([len(ordered)])))
        counts = bounds.diff()
        means = sums[bounds].diff() / counts
        centroids = torch.where(counts > 0, means, centroids)  # an empty cluster stays
    return centroids


def cluster(part: Vector, max_error: float) -> tuple[torch.Tensor, Vector]:
    """Return codes and the smallest codebook whose squared error ÷ squared norm is in the bound."""
    if not part.numel():
        return part.to(torch.uint8), part.new_zeros(CLUSTERS[0])
    exact = part.double()
    ordered, limit = exact.sort().values, max_error * float(exact.square().sum())
    for k in CLUSTERS:
        centroids = k_means(ordered, k).to(part.dtype)
        codes = torch.bucketize(part, (centroids[1:] + centroids[:-1]) / 2)
        if float((centroids[codes].double() - exact).square().sum()) <= limit:
            break
    return codes.to(torch.uint8), centroids


@dataclass(frozen=True)
class Clusters:
    """Compresses an update to codebooks and the clusters of the coordinates."""

    max_error: float

    def __call__(self, update: Vector, shapes: Shapes, alpha: float) -> Codebooks:
        """Return the update with the smallest codebooks within the bound on the error."""
        codes, books = zip(
            *(cluster(part, self.max_error) for part in split_tensors(update, shapes)), strict=True
        )
        sizes = [len(book) for book in books]
        bits = max(sizes).bit_length() - 1
        clusters, centroids = update.new_tensor(sizes), torch.cat(books)
        return Codebooks(torch.cat(codes), bits, clusters, centroids, shapes)


@method_factory(
    paper="Li et al., CDAG-FL, Electronics 12:3712, 2023",
    lost_reply="The server averages the replies that arrived.",
    reconstruction="Devices cluster the model update, not the weights, because the server averages "
    "updates. The paper bounds the loss of validation accuracy; a device has no validation data, "
    "so k is the smallest of 2, 4, 8 and 16 that keeps squared error ÷ squared norm per tensor "
    "at most at max_error, or 16. The ledger is left out.",
)
def cdag_fl(
    alpha: Alpha = 0.1,
    max_error: Annotated[float, Bounds("squared error ÷ squared norm of a tensor", 0, 1)] = 0.05,
    work: WorkOption = "gradient",
) -> Method:
    """Updates with a k-means codebook per tensor, as small as an error bound allows."""
    device = TensorUpdateDevice(alpha, work, Clusters(max_error))
    return Method("cdag_fl", device, MeanServer(alpha), CodebookReader())
