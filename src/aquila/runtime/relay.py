"""Passes the uploads of the last round on to the devices, which compute the next model from them.

If the server steps along the mean of the uploads, the model changes by a factor times their sum.
Ten uploads of a thousandth of a model take a hundredth of its bytes, and no coding adds an error.
Devices then see the uploads of others, so a run must ask for it.

The server compares the sum with the change. If they differ by more than rounding, as with a memory,
a server momentum or clipped uploads, `next_reference` returns None.

The reference model keeps the relayed rounds that led to it. A device that missed some of them gets
all uploads since its own model.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from aquila.core.method import theta_of
from aquila.core.packet import Packet, RelayedRound, RelayedUploads
from aquila.core.vector import Vector, squared_norm
from aquila.core.wire import pack
from aquila.runtime.frame_spool import ReadFrame
from aquila.runtime.reference import ReadUpload, ReferenceModel, sum_of_uploads

MAX_ROUNDING = 64
"""Largest difference of the models of server and devices, in units of the last place of a model.
Rounded sums drift apart slowly. Beyond this a model is sent."""
ROUND_BYTES, REPLY_BYTES = 32, 16
"""Bytes of a round and of a reply in a frame, besides the frame of the reply, at most."""
CODED_SHARE = 0.25
"""About the share of a model's bytes that a coded model takes."""


@dataclass(frozen=True)
class RoundUploads:
    """The uploads that the last round applied, with the weights of their devices."""

    weights: tuple[float, ...] = ()
    frames: tuple[bytes, ...] = ()

    @classmethod
    def within(
        cls, replies: Iterable[tuple[float, ReadFrame]], limit: int
    ) -> "RoundUploads | None":
        """Return weighted replies, None if a frame of them would take more bytes than this."""
        weights, frames, size = [], [], ROUND_BYTES
        for weight, read_frame in replies:
            frames.append(read_frame())
            weights.append(weight)
            size += REPLY_BYTES + len(frames[-1])
            if size > limit:
                return None
        return cls(tuple(weights), tuple(frames))


@dataclass(frozen=True)
class Relay:
    """Passes the uploads of the last round on.

    Args:
        uploads: The uploads.
        read: Reads one of them.
        report_unused: Takes the number of a round that sends a whole model instead.
    """

    uploads: RoundUploads
    read: ReadUpload
    report_unused: Callable[[int], None]

    def saves_later(self, model_bytes: int, share: float) -> bool:
        """Return whether a device that takes part again will get less than a coded model.

        All uploads since then are about those of this round divided by its share of the fleet.
        New devices get whole models, but each only once.
        """
        return sum(map(len, self.uploads.frames)) < CODED_SHARE * share * model_bytes

    def next_reference(self, order: Packet, base: ReferenceModel) -> ReferenceModel | None:
        """Return the model that follows from the base and the uploads.

        None if it differs from the model of the order by more than rounding.
        """
        theta, weights, frames = theta_of(order), self.uploads.weights, self.uploads.frames
        total = sum_of_uploads(weights, frames, base.theta, self.read)
        change = theta.double() - base.theta
        factor = _best_factor(total, change)
        reference = base.with_sum(total, factor)
        largest = MAX_ROUNDING * torch.finfo(theta.dtype).eps
        if squared_norm(theta - reference.theta) > largest**2 * squared_norm(theta):
            return None
        rounds = (*base.rounds, RelayedRound(base.checksum, factor, weights, frames))
        return ReferenceModel(reference.theta, reference.checksum, _newest(rounds, theta.nbytes))


def pack_rounds(order: Packet, reference: ReferenceModel, missed: int) -> bytes:
    """Return the model frame for a device whose model is this many rounds old."""
    rounds = reference.rounds[-missed:]
    relayed = RelayedUploads(reference.theta.numel(), reference.theta.dtype, rounds)
    return pack(Packet(order.round, relayed, refers_to=rounds[0].base))


def _newest(rounds: tuple[RelayedRound, ...], limit: int) -> tuple[RelayedRound, ...]:
    """Return the last rounds that take at most so many bytes together."""
    size, kept = 0, 0
    for one in reversed(rounds):
        size += ROUND_BYTES + sum(REPLY_BYTES + len(frame) for frame in one.frames)
        if size > limit:
            break
        kept += 1
    return rounds[len(rounds) - kept :]


def _best_factor(total: Vector, change: Vector) -> float:
    """Return the factor whose product with the sum is closest to the change."""
    size = squared_norm(total)
    if not size:
        return 0.0
    # this inner product has the same bits everywhere, unlike torch.dot
    inner = (squared_norm(total + change) - squared_norm(total - change)) / 4
    return inner / size
