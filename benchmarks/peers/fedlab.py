"""FedLab: its standalone pipeline, whose serial trainer takes one local step of SGD a device.

The mean of the devices' models after a step is the model after a step along the mean gradient.
In its favour, a device's data is one ready batch and not a loader that collates samples.
"""

import sys
from types import ModuleType

from torch.nn.functional import cross_entropy

from peers.workload import ALPHA


def stub_torchvision():
    """Stand in for torchvision where it is missing: FedLab needs it for its own data sets alone."""
    try:
        import torchvision  # noqa: F401
    except ImportError:
        for name in ("torchvision", "torchvision.datasets", "torchvision.transforms"):
            sys.modules[name] = ModuleType(name)
        sys.modules["torchvision"].datasets = sys.modules["torchvision.datasets"]
        sys.modules["torchvision"].transforms = sys.modules["torchvision.transforms"]


class SingleBatchDataset:
    """All samples of a device as its only batch."""

    def __init__(self, shards):
        self.shards = shards

    def get_dataloader(self, device, batch_size):
        return [self.shards[device]]


def run(workload, log):
    stub_torchvision()
    from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
    from fedlab.contrib.algorithm.basic_server import SyncServerHandler
    from fedlab.core.standalone import StandalonePipeline

    losses = []

    def recorded_loss(outputs, targets):
        loss = cross_entropy(outputs, targets)
        losses.append(loss.detach())
        return loss

    class Pipeline(StandalonePipeline):
        def evaluate(self):
            log.end_round(sum(losses) / len(losses))
            losses.clear()

    model = workload.model()
    trainer = SGDSerialClientTrainer(model, workload.devices)
    trainer.setup_dataset(SingleBatchDataset(workload.shards()))
    trainer.setup_optim(epochs=1, batch_size=None, lr=ALPHA)
    trainer.criterion = recorded_loss
    handler = SyncServerHandler(model, global_round=workload.rounds, sample_ratio=1.0)
    Pipeline(handler, trainer).main()
