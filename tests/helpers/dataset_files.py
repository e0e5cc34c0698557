"""Small data sets in the official file formats, and the real ones if they are installed."""

import gzip
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from aquila.tasks import data_store

WIKITEXT = {
    "wiki.train.tokens": " \n = Eagle = \n \n an eagle sees an <unk> fish \n",
    "wiki.valid.tokens": " an eagle \n",
    "wiki.test.tokens": " the eagle sees the eagle \n",
}


def real_data(name: str) -> Path:
    """Return the folder to load real data from, or skip the test."""
    for place in data_store.search_folders():
        if data_store.find(name, place):
            return place
    pytest.skip(f"{name} is not on this machine")


def isolate_data_folders(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Restrict the search for data sets to a folder; return the folder that $AQUILA_DATA names."""
    monkeypatch.setenv("AQUILA_DATA", str(folder / "named"))
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setattr(data_store, "DEBIAN_FOLDER", folder / "debian")
    monkeypatch.chdir(folder)
    return folder / "named"


def pickled_string(value: bytes) -> bytes:
    """Return a string as Python 2 pickled it."""
    short = len(value) < 256
    return (b"U" + bytes([len(value)]) if short else b"T" + struct.pack("<I", len(value))) + value


def pickled_array(values: np.ndarray, kind: bytes = b"u1") -> bytes:
    """Return an array as Python 2 and a NumPy of that time pickled it."""
    rows, columns = (b"J" + struct.pack("<i", size) for size in values.shape)
    made = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
        + pickled_string(b"b")
        + b"\x87R"
    )
    dtype = b"cnumpy\ndtype\n" + pickled_string(kind) + b"K\x00K\x01\x87R"
    unset = b"J" + struct.pack("<i", -1)
    dtype += b"(K\x03" + pickled_string(b"|") + b"NNN" + 2 * unset + b"K\x00tb"
    return (
        made
        + b"(K\x01"
        + rows
        + columns
        + b"\x86"
        + dtype
        + b"\x89"
        + pickled_string(values.tobytes())
        + b"tb"
    )


def pickled_dictionary(**entries: bytes) -> bytes:
    """Return the pickle of a dictionary whose values are already pickled."""
    inside = b"".join(pickled_string(key.encode()) + value for key, value in entries.items())
    return b"\x80\x02}(" + inside + b"u."


def cifar_batch(images: np.ndarray, labels: list[int], kind: str = "labels") -> bytes:
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    names = b"](" + pickled_string(b"some.png") * len(labels) + b"e"
    return pickled_dictionary(batch_label=pickled_string(b"batch 1 of 5"),
                      data=pickled_array(images), filenames=names, **{kind: listed})  # fmt: skip


def random_images(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), np.uint8)


def write_cifar10(place: Path, images: int = 4) -> list[np.ndarray]:
    """Write the six batches; batch b holds the classes b, b + 1, ... Return the images."""
    folder = place / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    batches = [random_images(images, seed) for seed in range(6)]
    for number, batch in enumerate(batches):
        file = f"data_batch_{number + 1}" if number < 5 else "test_batch"
        labels = [(number + n) % 10 for n in range(images)]
        (folder / file).write_bytes(cifar_batch(batch, labels))
    return batches


def write_cifar100(place: Path) -> None:
    folder = place / "cifar-100-python"
    folder.mkdir(parents=True)
    (folder / "train").write_bytes(cifar_batch(random_images(3), [99, 0, 50], "fine_labels"))
    (folder / "test").write_bytes(cifar_batch(random_images(2), [7, 8], "fine_labels"))


def idx_bytes(values: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, values.ndim])
        + struct.pack(f">{values.ndim}I", *values.shape)
        + values.tobytes()
    )


def write_fashion_mnist(folder: Path, packed: bool) -> np.ndarray:
    """Write five training and two test images; return the former."""
    folder.mkdir(parents=True)
    images = np.random.default_rng(0).integers(0, 256, (7, 28, 28), np.uint8)
    labels = np.array([9, 0, 1, 2, 3, 4, 5], np.uint8)
    for part, of in (("train", slice(0, 5)), ("t10k", slice(5, 7))):
        for name, values in (("images-idx3", images), ("labels-idx1", labels)):
            content = idx_bytes(values[of])
            file = folder / f"{part}-{name}-ubyte{'.gz' if packed else ''}"
            file.write_bytes(gzip.compress(content) if packed else content)
    return images[:5]


def write_wikitext2(place: Path) -> None:
    folder = place / "wikitext-2"
    folder.mkdir(parents=True)
    for file, text in WIKITEXT.items():
        (folder / file).write_text(text, encoding="utf-8")


def pack_tar(folder: Path, archive: Path) -> None:
    """Pack a folder into a tar archive, with its files in an arbitrary order."""
    with tarfile.open(archive, "w:gz") as packed:
        for file in sorted(folder.iterdir(), reverse=True):
            packed.add(file, f"{folder.name}/{file.name}")


def pack_zip(folder: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in folder.iterdir():
            packed.write(file, f"{folder.name}/{file.name}")
