"""Pickles are read as data; a pickle that would execute code is refused first."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aquila.tasks.safe_pickle import read_pickle
from helpers.dataset_files import cifar_batch, pickled_array, pickled_dictionary, random_images


class Hostile:
    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call


def test_reads_official_files() -> None:
    images = random_images(3)
    entries = read_pickle(cifar_batch(images, [1, 2, 3]))
    assert np.array_equal(entries["data"], images)
    assert entries["labels"] == [1, 2, 3]
    assert entries["batch_label"] == b"batch 1 of 5"


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_reads_pickles_of_current_numpy(protocol: int) -> None:
    for order in "CF":
        images = np.array(random_images(4), order=order)
        content = pickle.dumps({"data": images}, protocol)
        if protocol < 5:
            assert np.array_equal(read_pickle(content)["data"], images)
        else:  # protocol 5 uses another function, which official files do not need
            with pytest.raises(ValueError, match="_frombuffer"):
                read_pickle(content)


@pytest.mark.parametrize("protocol", range(6))
def test_commands_are_refused_and_not_executed(tmp_path: Path, protocol: int) -> None:
    harm = tmp_path / "harm"
    for hostile in (
        Hostile(os.system, f"touch {harm}"),
        Hostile(eval, f"open({str(harm)!r}, 'w')"),
        Hostile(Path.touch, harm),
        Hostile(getattr, Hostile, "__reduce__"),
    ):
        content = pickle.dumps({"data": hostile}, protocol)
        with pytest.raises(ValueError, match="refused to read this pickle: it uses"):
            read_pickle(content)
    assert not harm.exists()
    pickle.loads(pickle.dumps(Hostile(Path.touch, harm)))
    assert harm.exists(), "the hostile pickle must do harm when it is loaded normally"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "exhausted"),
        (b"\x80\x02]q\x00.", "does not hold a dictionary"),
        (
            pickled_dictionary(data=pickled_array(random_images(1), b"O8")),
            "array that is not uint8",
        ),
        (pickled_dictionary(data=pickled_array(random_images(1)))[:500], "refused"),
        (pickled_dictionary(data=b"cos\nsystem\n"), r"uses os\.system"),
        (pickled_dictionary(data=b"(S'touch harm'\nios\nsystem\n"), r"uses os\.system"),
        (pickled_dictionary(data=b"cnumpy\nndarray\n)R"), "not callable"),
        (pickled_dictionary(data=b"cnumpy\ndtype\n}b"), "argument"),
        (pickled_dictionary(data=b"cnumpy.core.multiarray\n_reconstruct\n)R}b"), "unknown format"),
        (pickled_dictionary(data=pickled_array(random_images(2))[:-40] + b"tb"), "refused"),
        (b"\x80\x02Pname\n.", "persistent"),
        (pickled_dictionary(data=b"]r\xff\xff\xff\x7f"), "more memory"),
        (pickled_dictionary(data=b"]p2000000000\n"), "more memory"),
    ],
)
def test_invalid_pickles_are_refused(content: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_pickle(content)


def test_array_needs_as_many_bytes_as_its_shape() -> None:
    whole = pickled_dictionary(data=pickled_array(np.zeros((2, 3), np.uint8)))
    assert np.array_equal(read_pickle(whole)["data"], np.zeros((2, 3)))
    with pytest.raises(ValueError, match="reshape"):
        read_pickle(whole.replace(b"J\x02\x00\x00\x00", b"J\x04\x00\x00\x00"))


@given(st.data())
def test_mutated_pickles_give_plain_values_or_an_error(data: st.DataObject) -> None:
    content = bytearray(cifar_batch(random_images(1)[:, :4], [1]))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        entries = read_pickle(bytes(content))
    except ValueError:
        return
    known = (np.ndarray, list, tuple, dict, bytes, str, int, float, type(None), type, set)
    assert all(isinstance(value, known) for value in entries.values())
