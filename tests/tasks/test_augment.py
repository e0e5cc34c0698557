"""Random crops and flips of images."""

import itertools

import pytest
import torch

from aquila.core.random import Key
from aquila.tasks.images import CIFAR10_NORMALIZATION, augment

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def shifted(image: torch.Tensor, down: int, right: int, mirror: bool, fill: float) -> torch.Tensor:
    """Crop the padded image with plain slices."""
    height, width = image.shape[1:]
    padded = torch.full((image.shape[0], height + 8, width + 8), fill)
    padded[:, 4 : 4 + height, 4 : 4 + width] = image
    crop = padded[:, 4 + down : 4 + down + height, 4 + right : 4 + right + width]
    return crop.flip(2) if mirror else crop


def test_augment_draws_every_crop_and_nothing_else() -> None:
    images = torch.arange(2 * 5 * 6.0).reshape(1, 2, 5, 6).repeat(1500, 1, 1, 1)
    moves = list(itertools.product(range(-4, 5), range(-4, 5), [False, True]))
    crops = {shifted(images[0], *move, fill=-1.0).numpy().tobytes() for move in moves}
    moved = augment(images, Key((0,)), fill=(-1.0, -1.0))
    assert {image.contiguous().numpy().tobytes() for image in moved} == crops


def test_augment_does_not_mix_images_and_fills_each_channel() -> None:
    images = torch.arange(1.0, 9.0).view(8, 1, 1, 1).repeat(1, 3, 16, 16)
    moved = augment(images, Key((1,)), fill=(-1.0, -2.0, -3.0))
    for number, image in enumerate(moved):
        for channel, fill in enumerate((-1, -2, -3)):
            assert set(image[channel].flatten().tolist()) <= {number + 1, fill}
    assert (moved < 0).any()


def test_augment_depends_on_key_and_keeps_its_input() -> None:
    images = torch.randn(20, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    before = images.clone()
    a, b, c = (augment(images, Key((seed,))) for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert torch.equal(images, before)


def test_same_draws_move_every_image_as_slices_do() -> None:
    images = torch.randn(200, 2, 7, 9, generator=torch.Generator().manual_seed(0))
    for layout in (torch.contiguous_format, torch.channels_last):
        given = images.contiguous(memory_format=layout)
        moved, rng = augment(given, Key((5, 3)), fill=(-1.0,)), Key((5, 3)).numpy()
        down, right = (rng.integers(-4, 4, 200, endpoint=True) for _ in range(2))
        mirrored = rng.random(200) < 0.5
        expected = [
            shifted(image, *move, fill=-1.0)
            for image, *move in zip(images, down, right, mirrored, strict=True)
        ]
        assert torch.equal(moved, torch.stack(expected))


def test_black_pixels_stay_black() -> None:
    black = CIFAR10_NORMALIZATION.apply(torch.zeros(30, 3, 8, 8, dtype=torch.uint8))
    torch.testing.assert_close(augment(black, Key((0,)), CIFAR10_NORMALIZATION.black), black)


@NEEDS_GPU
def test_gpu_gives_the_images_of_the_cpu() -> None:
    images = torch.randn(250, 3, 32, 32)
    for fill in ((0.0,), CIFAR10_NORMALIZATION.black):
        moved = augment(images.cuda(), Key((1,)), fill)
        assert torch.equal(moved.cpu(), augment(images, Key((1,)), fill))


@NEEDS_GPU
@pytest.mark.filterwarnings("ignore")  # the debug mode is a prototype
def test_augment_does_not_wait_for_a_gpu() -> None:
    images = torch.randn(250, 3, 32, 32).cuda()
    expected = augment(images, Key((1,)))  # the first call copies the padding values
    torch.cuda.set_sync_debug_mode("error")
    try:
        moved = augment(images, Key((1,)))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(moved, expected)
