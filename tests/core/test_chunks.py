"""The chunks of a model: which coordinates they have, and in which order."""

import numpy as np
import torch

from aquila.core.chunks import chunks_of

SHAPES = (
    torch.Size([20, 20]), torch.Size([0]), torch.Size([]), torch.Size([256]), torch.Size([120]),
)  # fmt: skip


def test_longest_chunks_come_first_and_rests_are_filled_with_zeros():
    """The tensors have 400, 0, 1, 256 and 120 coordinates, the chunks 128."""
    chunks = chunks_of(SHAPES, 7)
    assert [(run.start, run.count, run.length) for run in chunks.runs] == [
        (0, 6, 128), (768, 2, 64),
    ]  # fmt: skip
    expected = np.concatenate([
        np.arange(1, 385), np.arange(402, 778), np.zeros(8),
        np.arange(385, 401), np.zeros(48), [401], np.zeros(63),
    ])  # fmt: skip
    padded = chunks.pad(torch.arange(1.0, 778.0))
    assert padded.tolist() == expected.tolist()
    assert chunks.unpad(padded).tolist() == list(range(1, 778))


def test_sizes_and_starts_follow_from_the_runs():
    chunks = chunks_of(SHAPES, 7)
    assert (chunks.dimension, chunks.padded_size) == (777, 896)
    assert chunks.sizes.tolist() == [7] * 6 + [6] * 2
    assert chunks.starts.tolist() == [0, 128, 256, 384, 512, 640, 768, 832]


def test_short_tensors_are_one_chunk_each():
    chunks = chunks_of((torch.Size([30]), torch.Size([150]), torch.Size([40])), 10)
    assert chunks.sizes.tolist() == [8, 6, 6]
    assert [piece.source for piece in chunks.pieces] == [30, 0, 180]
