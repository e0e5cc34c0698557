"""pfl: federated averaging on its simulated backend, one local step on all data of a device.

A central optimizer of rate 1 adds the mean of the local changes, a step along the mean gradient.
In its favour, nothing is evaluated, and losses are recorded where they are computed anyway.
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

from peers.workload import ALPHA


class RecordedLossModel(torch.nn.Module):
    """A model with the methods that pfl requires."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.losses = []

    def loss(self, x, y):
        loss = cross_entropy(self.inner(x), y)
        self.losses.append(loss.detach().clone())  # pfl scales the loss in place
        return loss

    def metrics(self, x, y):
        return {}


class ModelWithoutEvaluation(PyTorchModel):
    """Skips the evaluation before and after training in pfl's first round."""

    def evaluate(self, *args):
        return Metrics()


class LogRounds(TrainingProcessCallback):
    """Ends a round of the log at the end of each central iteration."""

    def __init__(self, module, log):
        self.module, self.log = module, log

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.log.end_round(sum(self.module.losses) / len(self.module.losses))
        self.module.losses.clear()
        return False, Metrics()


def federated(shards):
    """Return a pfl data set whose cohorts are all devices, in order."""
    users = [PyTorchTensorDataset(shard, user_id=str(m)) for m, shard in enumerate(shards)]
    return FederatedDataset(users.__getitem__, MinimizeReuseUserSampler(range(len(users))))


def run(workload, log):
    module, data = RecordedLossModel(workload.model()), federated(workload.shards())
    central = torch.optim.SGD(module.parameters(), lr=1.0)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=workload.rounds,
            evaluation_frequency=workload.rounds,
            train_cohort_size=workload.devices,
            val_cohort_size=None,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        ModelWithoutEvaluation(module, torch.optim.SGD, central),
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=ALPHA, local_batch_size=None),
        callbacks=[LogRounds(module, log)],
        send_metrics_to_platform=False,
    )
