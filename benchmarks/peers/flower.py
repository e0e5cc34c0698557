"""Flower: its simulation on Ray with one CPU per client, so that all cores are used.

A client replies with its gradient, and the strategy takes a step along the mean. In its favour, the
model is sent as one array, and each worker keeps module and data between messages.
"""

import os
import time
from functools import lru_cache
from pathlib import Path

os.environ["FLWR_TELEMETRY_ENABLED"] = os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from peers.workload import ALPHA, Workload

client = ClientApp()


@lru_cache(1)
def load_workload(case, folder):
    """Return model and data, cached in every worker."""
    workload = Workload(case, Path(folder), 0)
    return workload.model(), workload.shards()


@client.train()
def compute_gradient(message, context):
    """Reply with loss and gradient at the received model."""
    config = message.content["config"]
    model, shards = load_workload(config["case"], config["folder"])
    x, y = shards[context.node_config["partition-id"]]
    (theta,) = message.content["arrays"].to_numpy_ndarrays()
    vector_to_parameters(torch.tensor(theta), model.parameters())
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    gradient = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    metrics = MetricRecord({"loss": loss.item(), "num-examples": len(x)})
    arrays = ArrayRecord([gradient.numpy()])
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


class GradientDescent(FedAvg):
    """A strategy that steps along the mean gradient."""

    def __init__(self, theta, devices, log):
        super().__init__(fraction_evaluate=0.0, min_train_nodes=devices)
        self.theta, self.log = theta, log

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        (mean,) = arrays.to_numpy_ndarrays()
        self.theta = self.theta - ALPHA * mean
        self.log.end_round(metrics["loss"])
        return ArrayRecord([self.theta]), metrics


def run(workload, log):
    server = ServerApp()
    theta0 = parameters_to_vector(workload.model().parameters()).detach().numpy()

    @server.main()
    def run_server(grid, context):
        while len(list(grid.get_node_ids())) < workload.devices:
            time.sleep(0.01)  # the strategy's own wait takes seconds
        GradientDescent(theta0, workload.devices, log).start(
            grid,
            ArrayRecord([theta0]),
            num_rounds=workload.rounds,
            train_config=ConfigRecord({"case": workload.case, "folder": str(workload.folder)}),
        )

    one_cpu = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, workload.devices, backend_config=one_cpu)
