"""Tasks of distributed.py: a model, the batches of a rank and the loss on test samples."""

import copy
from dataclasses import dataclass
from functools import cache

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from aquila.tasks.datasets import read_dataset
from aquila.tasks.models import build_model

TASKS = ("digits", "cnn", "resnet18", "gpt")
TEST_BATCH = 50
NORM_BATCHES = 20
"""Batches that give the statistics of batch norms before an evaluation."""
VALIDATION = 4
"""The last test samples, one of this many, choose parameters. Reported losses leave them out."""


class Gpt(nn.Module):
    """A decoder that predicts the next word, with tied embeddings."""

    def __init__(self, words, length, width, layers, heads):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        block = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True,
            norm_first=True,
        )  # fmt: skip
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.register_buffer(
            "mask", nn.Transformer.generate_square_subsequent_mask(length), persistent=False
        )
        for table in (self.words, self.places):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids):
        length = ids.shape[1]
        x = self.words(ids) + self.places.weight[:length]
        x = self.blocks(x, mask=self.mask[:length, :length], is_causal=True)
        return self.norm(x) @ self.words.weight.T


@dataclass
class Task:
    """A task on one rank.

    Args:
        model: The model, with the same weights on all ranks.
        train: Inputs and targets of this rank.
        test: Inputs and targets of the test.
        validation: Inputs and targets that choose parameters.
        loss: Loss of outputs and targets.
        seed: Seed of the batches of this rank.
    """

    model: nn.Module
    train: tuple
    test: tuple
    validation: tuple
    loss: object
    seed: int

    def batch(self, step, size):
        draw = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        chosen = torch.randint(len(self.train[0]), (size,), generator=draw)
        return tuple(part[chosen.to(part.device)] for part in self.train)

    @torch.no_grad()
    def evaluate(self, size):
        """Return the losses of the test and of the validation samples.

        Batches of the given size determine the statistics of batch norms.
        """
        model = self._with_fresh_norms(size).eval()
        return {name: self._loss_of(model, getattr(self, name)) for name in ("test", "validation")}

    def _loss_of(self, model, samples):
        total = 0.0
        for start in range(0, len(samples[0]), TEST_BATCH):
            x, y = (part[start : start + TEST_BATCH] for part in samples)
            total += float(self.loss(model(x), y)) * len(x)
        return total / len(samples[0])

    def _with_fresh_norms(self, size):
        """Return a copy whose batch norms have statistics of the weights as they are now."""
        model = copy.deepcopy(self.model).train()
        norms = [part for part in model.modules() if isinstance(part, nn.BatchNorm2d)]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the mean over all batches
        for batch in range(NORM_BATCHES if norms else 0):
            model(self.batch(batch, size)[0])
        return model


def next_word_loss(outputs, ids):
    return F.cross_entropy(outputs[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


@cache
def load_data(name, folder):
    """Return the data set of a task. Forked ranks share what their parent has loaded."""
    data_name = {"digits": "digits", "gpt": "wikitext2"}.get(name, "cifar10")
    return read_dataset(data_name, None if name == "digits" else folder)


def make_task(name, rank, ranks, args):
    """Return a task whose samples are dealt out to the ranks."""
    data = load_data(name, args.data)
    torch.manual_seed(args.seed)
    loss = F.cross_entropy
    if name == "digits":
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    elif name == "gpt":
        model = Gpt(data.classes, data.train[0].shape[1], args.width, args.layers, args.heads)
        loss = next_word_loss
    else:
        sizes = {"channels": 3, "size": 32, "filters": 16} if name == "cnn" else {"channels": 3}
        model = build_model(name, **sizes)
    kept = len(data.test[0]) - len(data.test[0]) // VALIDATION
    count = args.test_samples
    train = tuple(part[rank::ranks].to(args.device) for part in data.train)
    test = tuple(part[: min(kept, count)].to(args.device) for part in data.test)
    validation = tuple(part[kept : kept + count].to(args.device) for part in data.test)
    seed = args.seed * 1000 + rank
    return Task(model.to(args.device), train, test, validation, loss, seed)
