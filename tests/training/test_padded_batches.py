"""Batches padded to their longest sample: new shapes of inputs appear while a device trains."""

import threading

import torch
from torch import nn
from torch.utils.data import DataLoader

import aquila

GENERATOR = torch.Generator().manual_seed(0)
TEXTS = [(torch.randint(10, (2 + n % 5,), generator=GENERATOR), n % 2) for n in range(20)]


class Classifier(nn.Module):
    """Draws random numbers, and its outputs depend on how many batches it has seen."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.dropout = nn.Embedding(10, 4), nn.Dropout(0.2)
        self.scores = nn.Linear(4, 2)
        self.register_buffer("batches", torch.zeros(()))

    def forward(self, x):
        self.batches += 1
        return self.scores(self.dropout(self.embedding(x)).mean(1)) / self.batches


def pad(samples):
    x = nn.utils.rnn.pad_sequence([text for text, _ in samples], batch_first=True)
    return x, torch.tensor([label for _, label in samples])


def train_twice(runs):
    """Train in a thread that also makes the problem, so that it trains the module of the checks."""
    made = aquila.problem(Classifier(), [DataLoader(TEXTS, 3, collate_fn=pad)])
    for _ in range(2):  # only the first run finds new shapes
        runs.append(made.train(aquila.create("fedavg", alpha=0.1), 2))


def test_checks_of_new_shapes_do_not_change_the_turn():
    runs = []
    thread = threading.Thread(target=train_twice, args=(runs,), daemon=True)
    thread.start()
    thread.join(60)
    assert len(runs) == 2, "training did not end"
    assert runs[0].records == runs[1].records
    assert runs[0].theta.equal(runs[1].theta)
