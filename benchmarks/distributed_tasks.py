"""Tasks of distributed.py: a model, the batches of a rank and the loss on test samples."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from aquila.tasks.datasets import read_dataset
from aquila.tasks.models import build_model

TEST_BATCH = 250


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
        loss: Loss of outputs and targets.
        seed: Seed of the batches of this rank.
    """

    model: nn.Module
    train: tuple
    test: tuple
    loss: object
    seed: int

    def batch(self, step, size):
        draw = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        chosen = torch.randint(len(self.train[0]), (size,), generator=draw)
        return tuple(part[chosen.to(part.device)] for part in self.train)

    @torch.no_grad()
    def test_loss(self):
        self.model.eval()
        total = 0.0
        for start in range(0, len(self.test[0]), TEST_BATCH):
            x, y = (part[start : start + TEST_BATCH] for part in self.test)
            total += float(self.loss(self.model(x), y)) * len(x)
        self.model.train()
        return total / len(self.test[0])


def next_word_loss(outputs, ids):
    return F.cross_entropy(outputs[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def make_task(name, rank, ranks, args):
    """Return a task whose samples are dealt out to the ranks."""
    data_name = {"digits": "digits", "gpt": "wikitext2"}.get(name, "cifar10")
    data = read_dataset(data_name, None if name == "digits" else args.data)
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
    test = tuple(part[: args.test_samples].to(args.device) for part in data.test)
    train = tuple(part[rank::ranks].to(args.device) for part in data.train)
    return Task(model.to(args.device), train, test, loss, args.seed * 1000 + rank)
