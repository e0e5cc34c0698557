"""What a rank saves besides its sessions, and the text that a saved state must match."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from aquila.core.tensors import Shapes, total_size
from aquila.native.checksum import crc32

NOT_A_STATE = "this is not the result of state_dict() of aquila.distributed"
MAX_RANKS = 2**20
"""A state of more ranks is damaged."""


@dataclass(frozen=True)
class RankCounters:
    """Counters of a rank.

    Args:
        steps: Steps since the start.
        pending: Steps since the last round.
        bytes_sent: Bytes of all frames that the rank has sent.
        bytes_received: Bytes of all frames of the other ranks.
        loss_sum: Sum of the losses since the last round.
        losses: Number of these losses.
    """

    steps: int = 0
    pending: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    loss_sum: float | torch.Tensor = 0.0
    losses: int = 0

    @property
    def mean_loss(self) -> float | None:
        """Mean of the losses since the last round, None without any."""
        return float(self.loss_sum) / self.losses if self.losses else None

    def after_step(self, loss: float | torch.Tensor | None) -> "RankCounters":
        """Return the counters after a step. A loss on a GPU stays there until the round."""
        counted = replace(self, steps=self.steps + 1, pending=self.pending + 1)
        if loss is None:
            return counted
        if isinstance(loss, torch.Tensor):
            loss = loss.detach().double()
        return replace(counted, loss_sum=self.loss_sum + loss, losses=self.losses + 1)

    def after_exchange(self, sent: int, received: int) -> "RankCounters":
        """Return the counters after frames of these lengths."""
        return replace(
            self, bytes_sent=self.bytes_sent + sent, bytes_received=self.bytes_received + received
        )

    def to_dict(self) -> dict[str, int | float]:
        """Return the counters as plain numbers."""
        return {**asdict(self), "loss_sum": float(self.loss_sum)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any], every: int) -> "RankCounters":
        """Return the counters from the result of `to_dict`; ValueError if one is invalid.

        Args:
            saved: The result of `to_dict`.
            every: Steps between two rounds.
        """
        counters: dict[str, Any] = {name: saved.get(name) for name in cls.__dataclass_fields__}
        for name, number in counters.items():
            is_sum = name == "loss_sum" and isinstance(number, float)
            if not is_sum and (not isinstance(number, int) or number < 0):
                raise ValueError(f"the state is damaged: {name} is {number!r}")
        if counters["pending"] >= every:
            raise ValueError(f"the state is damaged: pending is {counters['pending']}")
        return cls(**counters)

    def after_round(self) -> "RankCounters":
        """Return the counters at the start of the next round."""
        return replace(self, pending=0, loss_sum=0.0, losses=0)


def settings_text(settings: Mapping[str, object], shapes: Shapes, dtype: torch.dtype) -> str:
    """Return the settings that all ranks must share, one per line."""
    lines = [f"{name} {value}" for name, value in settings.items()]
    digest = crc32(repr([tuple(shape) for shape in shapes]).encode())
    lines.append(f"parameters {total_size(shapes)} of {dtype}, shapes {digest:08x}")
    return "\n".join(lines)


def check_saved(
    state: Mapping[str, Any], settings: str, rank: int, ranks: int
) -> tuple[Mapping[str, Any] | None, int]:
    """Return the saved part of a rank and the number of ranks.

    The part is None if the state is of another number of ranks. ValueError if the state has other
    settings, or is of another rank.
    """
    if not isinstance(state, Mapping) or not {"settings", "ranks"} <= state.keys():
        raise ValueError(NOT_A_STATE)
    saved, now = str(state["settings"]).splitlines(), settings.splitlines()
    if saved != now:
        theirs = "; ".join(line for line in saved if line not in now)
        ours = "; ".join(line for line in now if line not in saved)
        raise ValueError(
            f"the state was saved with {theirs or 'less'}, but this is {ours or 'less'}"
        )
    saved_ranks = state["ranks"]
    if not isinstance(saved_ranks, int) or not 0 < saved_ranks <= MAX_RANKS:
        raise ValueError(f"the state is damaged: ranks is {saved_ranks!r}")
    if saved_ranks != ranks:
        return None, saved_ranks
    own = state.get(f"rank_{rank}")
    if own is None:
        raise ValueError(f"the state is of another rank than rank {rank}")
    return own, ranks


def saved_bytes(part: Mapping[str, Any], name: str) -> bytes:
    """Return the bytes of a session in a saved state; ValueError if there are none."""
    content = part.get(name) if isinstance(part, Mapping) else None
    if not isinstance(content, bytes):
        raise ValueError(NOT_A_STATE)
    return content
