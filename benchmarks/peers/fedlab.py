"""FedLab: its standalone pipeline with the serial trainer, one local SGD step per device.

The mean of the local models after one step equals the model after a step along the mean gradient.
In its favour, the data of a device is one prepared batch, not a loader that collates samples.
"""

import sys
from types import ModuleType

from torch.nn.functional import cross_entropy

from peers.workload import ALPHA


def stub_torchvision():
    """Replace a missing torchvision: FedLab needs it only for its own data sets."""
    try:
        import torchvision  # noqa: F401
    except ImportError:
        for name in ("torchvision", "torchvision.datasets", "torchvision.transforms"):
            sys.modules[name] = ModuleType(name)
        sys.modules["torchvision"].datasets = sys.modules["torchvision.datasets"]
        sys.modules["torchvision"].transforms = sys.modules["torchvision.transforms"]


class SingleBatchDataset:
    """Serves all samples of a device as one batch."""

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
