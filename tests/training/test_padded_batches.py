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


def train_with_timeout(made):
    """Train on a thread, so that a deadlock fails the test."""
    runs = []
    method = aquila.create("fedavg", alpha=0.1)
    thread = threading.Thread(target=lambda: runs.append(made.train(method, 2)), daemon=True)
    thread.start()
    thread.join(60)
    assert runs, "training did not end"
    return runs[0]


def test_checks_of_new_shapes_do_not_change_the_turn():
    made = aquila.problem(Classifier(), [DataLoader(TEXTS, 3, collate_fn=pad)])
    first = train_with_timeout(made)  # checks every new shape while it trains
    second = train_with_timeout(made)
    assert first.records == second.records
    assert first.theta.equal(second.theta)
