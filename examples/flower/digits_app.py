"""Train on handwritten digits on three devices, with any AQUILA method."""

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import aquila
import aquila.flower
from aquila.tasks.digits import load_digits

DEVICES = 3
DATA = load_digits()


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))


def make_method(context: Context) -> aquila.Method:
    config = context.run_config
    return aquila.create(str(config["method"]), alpha=float(config["alpha"]))


def make_device(device: int, context: Context) -> object:
    inputs, labels = DATA.train  # replace by the data of this device
    own = slice(device, None, DEVICES)
    return aquila.problem(make_model(), [(inputs[own], labels[own])]).devices[0]


client = aquila.flower.client_app(make_method, make_device)
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    problem = aquila.problem(make_model(), [DATA.train], DATA.test)
    aquila.flower.strategy(
        make_method(context),
        problem.theta0,
        devices=DEVICES,
        rounds=int(context.run_config["rounds"]),
        evaluate=lambda theta: {"accuracy": problem.evaluate(theta)["test_accuracy"]},
        options=aquila.RunOptions(out=str(context.run_config["folder"]) or None),
    ).start(grid)
