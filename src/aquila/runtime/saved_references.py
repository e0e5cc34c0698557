"""What the server keeps for its next models, as arrays of a checkpoint or a state file."""

from dataclasses import replace
from io import BytesIO
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch

from aquila.core.fleet import Fleet
from aquila.core.packet import RelayedRound
from aquila.core.state import Arrays
from aquila.core.vector import Vector
from aquila.runtime.model_downlink import Group, References
from aquila.runtime.reference import ReferenceModel, with_checksum
from aquila.runtime.relay import RoundUploads
from aquila.runtime.server_state import ServerSnapshot

REFERENCE_PREFIX = "reference."
"""Prefix of the array names of saved references."""
RELAY_PREFIX = "relayed."
"""Prefix of the array names of saved uploads."""
UNANSWERED = "unanswered"
"""Name of the array of orders without a reply per device."""


SERVER_DOWNLINK = (REFERENCE_PREFIX, RELAY_PREFIX, UNANSWERED)
"""How the names of the arrays of `downlink_to_arrays` begin."""


class DownlinkState(NamedTuple):
    """What a server snapshot keeps for the next models that it sends."""

    references: References
    uploads: RoundUploads | None
    unanswered: tuple[int, ...]


def downlink_to_arrays(saved: ServerSnapshot) -> Arrays:
    """Return what a snapshot keeps for the next models, as arrays."""
    return {
        **references_to_arrays(saved.references),
        **uploads_to_arrays(saved.uploads),
        UNANSWERED: np.asarray(saved.unanswered, np.int64),
    }


def downlink_from_arrays(arrays: Arrays, fleet: Fleet, like: Vector) -> DownlinkState:
    """Return what a snapshot kept, or raise ValueError if it does not match the fleet.

    A file of an earlier version has no counts of unanswered orders, which are then zero.
    """
    count = len(fleet.devices)
    unanswered: list[int] = arrays.get(UNANSWERED, np.zeros(count, np.int64)).tolist()
    if len(unanswered) != count:
        raise ValueError(f"it has {len(unanswered)} counts of orders, not {count}")
    references = references_from_arrays(arrays, fleet, like)
    return DownlinkState(references, uploads_from_arrays(arrays), tuple(unanswered))


def references_to_arrays(references: References) -> Arrays:
    """Return references as arrays. Their checksums are computed again when they are loaded."""
    arrays: Arrays = {}
    for group, reference in references.items():
        arrays[f"{REFERENCE_PREFIX}{group}"] = reference.theta.cpu().numpy()
        arrays |= rounds_to_arrays(reference.rounds, _rounds_prefix(group))
    return arrays


def references_from_arrays(arrays: Arrays, fleet: Fleet, like: Vector) -> References:
    """Return saved references, or raise ValueError if they do not match the fleet."""
    references: dict[Group, ReferenceModel] = {}
    for group in range(len(fleet.slices)):
        name = f"{REFERENCE_PREFIX}{group}"
        if name in arrays:
            expected = (fleet.dimension_of_group(group),)
            if arrays[name].shape != expected:
                raise ValueError(f"the saved {name} has shape {arrays[name].shape}, not {expected}")
            theta = torch.from_numpy(arrays[name].copy()).to(like.device, like.dtype)
            rounds = rounds_from_arrays(arrays, _rounds_prefix(group))
            references[group] = replace(with_checksum(theta), rounds=rounds)
    return references


def _rounds_prefix(group: Group) -> str:
    return f"{RELAY_PREFIX}{group}."


def uploads_to_arrays(uploads: RoundUploads | None) -> Arrays:
    """Return uploads as arrays, none if they were not kept."""
    if uploads is None:
        return {}
    return rounds_to_arrays((RelayedRound(0, 0.0, uploads.weights, uploads.frames),), RELAY_PREFIX)


def uploads_from_arrays(arrays: Arrays) -> RoundUploads | None:
    """Return saved uploads."""
    rounds = rounds_from_arrays(arrays, RELAY_PREFIX)
    return RoundUploads(rounds[0].weights, rounds[0].frames) if rounds else None


def rounds_to_arrays(rounds: tuple[RelayedRound, ...], prefix: str) -> Arrays:
    """Return rounds as arrays, none if there are no rounds."""
    if not rounds:
        return {}
    frames = [frame for one in rounds for frame in one.frames]
    return {
        f"{prefix}bases": np.asarray([one.base for one in rounds]),
        f"{prefix}factors": np.asarray([one.factor for one in rounds]),
        f"{prefix}counts": np.asarray([len(one.frames) for one in rounds]),
        f"{prefix}weights": np.asarray([weight for one in rounds for weight in one.weights]),
        f"{prefix}sizes": np.asarray([len(frame) for frame in frames], np.int64),
        f"{prefix}frames": np.asarray(bytearray(b"".join(frames)), np.uint8),
    }


def rounds_from_arrays(arrays: Arrays, prefix: str) -> tuple[RelayedRound, ...]:
    """Return saved rounds."""
    if f"{prefix}bases" not in arrays:
        return ()
    bases, factors, counts = (
        arrays[f"{prefix}{name}"].tolist() for name in ("bases", "factors", "counts")
    )
    joined = BytesIO(arrays[f"{prefix}frames"].tobytes())
    replies = zip(
        arrays[f"{prefix}weights"].tolist(), arrays[f"{prefix}sizes"].tolist(), strict=True
    )
    rounds = []
    for base, factor, count in zip(bases, factors, counts, strict=True):
        of_round = [(weight, joined.read(size)) for weight, size in islice(replies, count)]
        weights, frames = zip(*of_round, strict=True) if of_round else ((), ())
        rounds.append(RelayedRound(base, factor, weights, frames))
    return tuple(rounds)
