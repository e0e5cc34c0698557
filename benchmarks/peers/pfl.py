"""pfl: federated averaging on its simulated backend, with one local step on all data of a device.

The mean of the devices' changes, added by a central optimizer of rate 1, is a step along the mean
gradient. In its favour, nothing is evaluated, and losses are noted where they are computed anyway.
"""

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch.nn.functional import cross_entropy

from peers.work import ALPHA


class NotedLoss(torch.nn.Module):
    """A model with the methods that pfl asks for."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.noted = []

    def loss(self, x, y):
        loss = cross_entropy(self.inner(x), y)
        self.noted.append(loss.detach().clone())  # pfl scales the loss in place
        return loss

    def metrics(self, x, y):
        return {}


class Unjudged(PyTorchModel):
    """Skips the evaluation before and after training that pfl makes in its first round."""

    def evaluate(self, *given):
        return Metrics()


class WriteDiary(TrainingProcessCallback):
    """Ends the diary's round when pfl ends its own."""

    def __init__(self, module, diary):
        self.module, self.diary = module, diary

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.diary.end_round(sum(self.module.noted) / len(self.module.noted))
        self.module.noted.clear()
        return False, Metrics()


def federated(shards):
    """A data set of pfl whose cohorts are all devices, in order."""
    users = [PyTorchTensorDataset(shard, user_id=str(m)) for m, shard in enumerate(shards)]
    return FederatedDataset(users.__getitem__, MinimizeReuseUserSampler(range(len(users))))


def run(work, diary):
    module, data = NotedLoss(work.model()), federated(work.shards())
    central = torch.optim.SGD(module.parameters(), lr=1.0)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=work.rounds,
            evaluation_frequency=work.rounds,
            train_cohort_size=work.devices,
            val_cohort_size=None,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        Unjudged(module, torch.optim.SGD, central),
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=ALPHA, local_batch_size=None),
        callbacks=[WriteDiary(module, diary)],
        send_metrics_to_platform=False,
    )
