"""WikiText-2 (Merity et al., 2016, arXiv 1609.07843), laid out as in HeteroFL's masked-LM task.

Words are what white space separates, with <eos> at the end of every line. The training file has
33,278 different ones, <eos> and its own <unk> among them; with <ukn>, for words that only other
files have, the vocabulary is the 33,279 of HeteroFL (Diao et al., ICLR 2021, code `lm.py`).

    stream    the ids of all words, 2,088,628 to train on and 245,569 to test on
    rows      the stream cut into 100 (test: 10) equally long rows, what is left over dropped
    samples   each row cut into sequences of 64 tokens, what is left over dropped;
              sample s of row r has the index r * (samples a row) + s

Inputs and targets are the same ids: the model hides some of them from itself. HeteroFL gives a
device whole rows; the partition `blocks:100` does that here.
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
    """Load sequences of token ids, 32,600 to train on and 3,830 to test on."""
    files = find_required("wikitext2", folder).read(read_words)
    ids = build_vocabulary(files["wiki.train.tokens"])
    train = cut_into_sequences(encode_words(files["wiki.train.tokens"], ids), train_rows, length)
    test = cut_into_sequences(encode_words(files["wiki.test.tokens"], ids), test_rows, length)
    return Dataset((train, train), (test, test), classes=len(ids))


def read_words(content: bytes) -> list[str]:
    """Return the words of a text, and the end of every line."""
    words: list[str] = []
    for line in io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"):
        words += line.split()
        words.append(END_OF_LINE)
    return words


def build_vocabulary(words: Iterable[str]) -> dict[str, int]:
    """Return the id of every word, in the order they first appear."""
    distinct = dict.fromkeys((UNKNOWN, END_OF_LINE, *words))
    return {word: number for number, word in enumerate(distinct)}


def encode_words(words: Iterable[str], ids: dict[str, int]) -> torch.Tensor:
    """Return the stream of ids, with that of <ukn> for words that have none."""
    return torch.tensor([ids.get(word, ids[UNKNOWN]) for word in words])


def cut_into_sequences(stream: torch.Tensor, rows: int, length: int) -> torch.Tensor:
    """Cut a stream into rows and these into sequences; return (sequence, token)."""
    row_length = len(stream) // rows
    kept = row_length // length * length
    if kept == 0:
        raise ValueError(f"{len(stream)} tokens do not fill {rows} rows of {length}")
    return stream[: rows * row_length].view(rows, -1)[:, :kept].reshape(-1, length)
