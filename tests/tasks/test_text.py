from pathlib import Path

import pytest
import torch

from aquila.tasks.text import (
    END_OF_LINE,
    UNKNOWN,
    build_vocabulary,
    cut_into_sequences,
    encode_words,
    load_wikitext2,
    read_words,
)
from helpers.dataset_files import pack_zip, real_data, write_wikitext2


def test_every_line_ends_with_eos() -> None:
    assert read_words(b" \n = A = \n b  c\n") == [
        END_OF_LINE,
        "=",
        "A",
        "=",
        END_OF_LINE,
        "b",
        "c",
        END_OF_LINE,
    ]


def test_only_newlines_end_lines() -> None:
    # U+2028 and the form feed are white space, but do not end a line
    assert read_words("a\u2028b\fc\r\nd".encode()) == ["a", "b", "c", END_OF_LINE, "d", END_OF_LINE]


def test_words_are_numbered_by_first_appearance() -> None:
    ids = build_vocabulary(["b", END_OF_LINE, "a", "b", "<unk>"])
    assert ids == {UNKNOWN: 0, END_OF_LINE: 1, "b": 2, "a": 3, "<unk>": 4}
    assert encode_words(["a", "zebra", END_OF_LINE, "<unk>"], ids).tolist() == [3, 0, 1, 4]


def test_sequences_come_row_by_row() -> None:
    # 23 tokens: 3 rows of 7, each with 3 sequences of 2; the remainder is dropped
    expected = [[0, 1], [2, 3], [4, 5], [7, 8], [9, 10], [11, 12], [14, 15], [16, 17], [18, 19]]
    assert cut_into_sequences(torch.arange(23), rows=3, length=2).tolist() == expected


@pytest.mark.parametrize(("rows", "length"), [(3, 8), (24, 1), (1, 24)])
def test_short_text_is_refused(rows: int, length: int) -> None:
    with pytest.raises(
        ValueError, match=f"23 tokens are too few for {rows} rows of {length} tokens"
    ):
        cut_into_sequences(torch.arange(23), rows, length)


@pytest.mark.parametrize("packed", [True, False])
def test_small_text_from_folder_and_archive(tmp_path: Path, packed: bool) -> None:
    write_wikitext2(tmp_path)
    if packed:
        (tmp_path / "packed").mkdir()
        pack_zip(tmp_path / "wikitext-2", tmp_path / "packed" / "wikitext-2-v1.zip")
    data = load_wikitext2(tmp_path / "packed" if packed else tmp_path, 2, 1, 3)
    # ids: <ukn> 0, <eos> 1, = 2, Eagle 3, an 4, eagle 5, sees 6, <unk> 7, fish 8
    assert data.classes == 9
    assert data.train[0].tolist() == [[1, 2, 3], [2, 1, 1], [4, 5, 6], [4, 7, 8]]
    assert data.test[0].tolist() == [[0, 5, 6], [0, 5, 1]]
    assert all(torch.equal(*samples) for samples in (data.train, data.test))


def test_real_wikitext2_has_heterofl_sizes() -> None:
    data = load_wikitext2(real_data("wikitext2"))
    assert data.classes == 33_279
    assert data.train[0].shape == (100 * (20_886 // 64), 64)
    assert data.test[0].shape == (10 * (24_556 // 64), 64)
    assert data.train[0].dtype == torch.long
    assert int(data.train[0].min()) == 1  # the training text has no unknown word
    assert int(data.test[0].min()) == 1  # neither has the test text
