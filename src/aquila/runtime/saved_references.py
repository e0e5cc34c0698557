"""Reference models and relayed uploads as arrays that a checkpoint or a state file holds."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

from aquila.core.fleet import Fleet
from aquila.core.packet import RelayedRound
from aquila.core.state import Arrays
from aquila.core.vector import Vector
from aquila.runtime.model_downlink import Group, References
from aquila.runtime.reference import ReferenceModel, with_checksum
from aquila.runtime.relay import RoundUploads

REFERENCE_PREFIX = "reference."
"""Prefix of the array names of saved references."""
RELAY_PREFIX = "relayed."
"""Prefix of the array names of saved uploads."""


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


def uploads_to_arrays(uploads: RoundUploads) -> Arrays:
    """Return uploads as arrays, none if there are no uploads."""
    rounds = (RelayedRound(0, 0.0, uploads.weights, uploads.frames),) if uploads.frames else ()
    return rounds_to_arrays(rounds, RELAY_PREFIX)


def uploads_from_arrays(arrays: Arrays) -> RoundUploads:
    """Return saved uploads."""
    rounds = rounds_from_arrays(arrays, RELAY_PREFIX)
    return RoundUploads(rounds[0].weights, rounds[0].frames) if rounds else RoundUploads()


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
        f"{prefix}frames": np.frombuffer(b"".join(frames), np.uint8),
    }


def rounds_from_arrays(arrays: Arrays, prefix: str) -> tuple[RelayedRound, ...]:
    """Return saved rounds."""
    if f"{prefix}bases" not in arrays:
        return ()
    bases, factors, counts, weights, sizes = (
        arrays[f"{prefix}{name}"].tolist()
        for name in ("bases", "factors", "counts", "weights", "sizes")
    )
    joined, start, rounds = arrays[f"{prefix}frames"].tobytes(), 0, []
    for base, factor, count in zip(bases, factors, counts, strict=True):
        of_round, sizes = sizes[:count], sizes[count:]
        ends = np.cumsum([start, *of_round]).tolist()
        frames = tuple(joined[i:j] for i, j in pairwise(ends))
        rounds.append(RelayedRound(base, factor, tuple(weights[:count]), frames))
        weights, start = weights[count:], ends[-1]
    return tuple(rounds)
