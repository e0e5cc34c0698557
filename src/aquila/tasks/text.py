"""WikiText-2 (Merity et al., 2016, arXiv 1609.07843) in the layout of HeteroFL's masked-LM task.

Words are separated by white space, and every line ends with the word <eos>. The training file has
33,278 different words, including <eos> and its own <unk>. The word <ukn>, for words that are not in
the training file, gives HeteroFL's vocabulary of 33,279 (Diao et al., ICLR 2021, code `lm.py`).

    stream    the ids of all words: 2,088,628 for training and 245,569 for testing
    rows      the stream cut into 100 (test: 10) rows of equal length; the remainder is dropped
    samples   each row cut into sequences of 64 tokens; the remainder is dropped.
              Sample s of row r has the index r * (samples per row) + s.

Inputs and targets are the same ids, because the model masks its own inputs. HeteroFL gives whole
rows to devices; the partition `blocks:100` does the same.
"""

import io
from collections.abc import Iterable
from pathlib import Path

import torch

from aquila.tasks.data_store import find_required
from aquila.tasks.dataset import Dataset

UNKNOWN, END_OF_LINE = "<ukn>", "<eos>"
TRAIN_ROWS, TEST_ROWS = 100, 10
LENGTH = 64


def load_wikitext2(
    folder: Path | None = None,
    train_rows: int = TRAIN_ROWS,
    test_rows: int = TEST_ROWS,
    length: int = LENGTH,
) -> Dataset:
    """Load 32,600 training and 3,830 test sequences of token ids."""
    files = find_required("wikitext2", folder).read(read_words)
    ids = build_vocabulary(files["wiki.train.tokens"])
    train = cut_into_sequences(encode_words(files["wiki.train.tokens"], ids), train_rows, length)
    test = cut_into_sequences(encode_words(files["wiki.test.tokens"], ids), test_rows, length)
    return Dataset((train, train), (test, test), classes=len(ids))


def read_words(content: bytes) -> list[str]:
    """Return the words of a text, with <eos> after every line."""
    words: list[str] = []
    for line in io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"):
        words += line.split()
        words.append(END_OF_LINE)
    return words


def build_vocabulary(words: Iterable[str]) -> dict[str, int]:
    """Return the id of every word, numbered in order of first appearance."""
    distinct = dict.fromkeys((UNKNOWN, END_OF_LINE, *words))
    return {word: number for number, word in enumerate(distinct)}


def encode_words(words: Iterable[str], ids: dict[str, int]) -> torch.Tensor:
    """Return the ids of the words. Unknown words get the id of <ukn>."""
    return torch.tensor([ids.get(word, ids[UNKNOWN]) for word in words])


def cut_into_sequences(stream: torch.Tensor, rows: int, length: int) -> torch.Tensor:
    """Cut a stream into rows and the rows into sequences; return ids (sequence, token)."""
    row_length = len(stream) // rows
    kept = row_length // length * length
    if kept == 0:
        raise ValueError(f"{len(stream)} tokens are too few for {rows} rows of {length} tokens")
    return stream[: rows * row_length].view(rows, -1)[:, :kept].reshape(-1, length)
