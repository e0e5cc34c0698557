"""Which devices own the rows of tensors that have one row per class or word.

HeteroFL (Diao et al., 2021, arXiv 2010.01264) averages a row of the output layer, or of the token
embeddings, only over the devices that have samples of the class, or the word in their text.
"""

import hashlib
from collections.abc import Mapping, Sequence

import torch

from aquila.core.tensors import FLEET_HINT, Shapes, split_tensors, total_size
from aquila.core.vector import Vector

OwnedRows = Mapping[int, torch.Tensor]
"""Number of a tensor of the model -> mask of its rows. A device owns all other tensors whole."""


class RowOwners:
    """The rows that each device of a fleet owns.

    Args:
        owned: The rows of each device, of the same tensors for all devices.
        shapes: The tensors of the model of each device.
        torch_device: Where vectors are stored.
    """

    def __init__(
        self,
        owned: Sequence[OwnedRows],
        shapes: Sequence[Shapes],
        torch_device: torch.device | str = "cpu",
    ) -> None:
        if len(owned) != len(shapes):
            raise ValueError(f"{len(owned)} devices own rows, but the fleet has {len(shapes)}")
        self._shapes = tuple(shapes)
        self._tensors = tuple(owned[0])
        for device, rows in enumerate(owned):
            self._check(device, rows)
        self._masks = {
            tensor: torch.stack([rows[tensor].to(torch_device) for rows in owned])
            for tensor in self._tensors
        }

    @property
    def digest(self) -> str:
        """Text that identifies the owners of all rows."""
        content = hashlib.sha256(repr(self._tensors).encode())
        for mask in self._masks.values():
            content.update(mask.cpu().numpy().tobytes())
        return content.hexdigest()[:16]

    def keep_owned(self, device: int, vector: Vector) -> Vector:
        """Return a vector of a device's model with zeros in the rows that it does not own."""
        kept = vector.clone()
        parts = split_tensors(kept, self._shapes[device])
        for tensor, mask in self._masks.items():
            own = mask[device]
            parts[tensor].view(len(own), -1).masked_fill_(~own[:, None], 0)
        return kept

    def total_weights(self, weights: Mapping[int, float]) -> Vector:
        """Return the weight of the owners of each coordinate, for devices with the same model."""
        devices = list(weights)
        shapes, numbers = self._shapes[devices[0]], list(weights.values())
        device = next(iter(self._masks.values())).device
        each = torch.tensor(numbers, dtype=torch.float64, device=device)
        total = each.new_full((total_size(shapes),), sum(numbers))
        parts = split_tensors(total, shapes)
        for tensor, mask in self._masks.items():
            of_rows = (mask[devices] * each[:, None]).sum(0)
            parts[tensor].view(len(of_rows), -1).copy_(of_rows[:, None])
        return total

    def _check(self, device: int, rows: OwnedRows) -> None:
        shapes = self._shapes[device]
        if not rows or tuple(rows) != self._tensors:
            raise ValueError(
                f"device {device} owns rows of the tensors {list(rows)}, but device 0 of "
                f"{list(self._tensors)}; they must be the same, at least one"
            )
        for tensor, mask in rows.items():
            if not 0 <= tensor < len(shapes):
                raise ValueError(
                    f"device {device} owns rows of tensor {tensor}, but the fleet states "
                    f"{len(shapes)} tensors; {FLEET_HINT}"
                )
            if mask.dtype != torch.bool or mask.shape != shapes[tensor][:1]:
                raise ValueError(
                    f"the mask of device {device} for the rows of tensor {tensor} must be "
                    f"{tuple(shapes[tensor][:1])} bool, not {tuple(mask.shape)} {mask.dtype}"
                )
