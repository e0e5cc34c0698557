"""A quadratic problem whose size and number of devices are settings of the run."""

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import aquila
import aquila.flower


def make_method(context: Context) -> aquila.Method:
    return aquila.create(str(context.run_config["method"]), alpha=0.1)


def make_device(device: int, context: Context) -> object:
    generator = torch.Generator().manual_seed(device)
    target = torch.randn(int(context.run_config["coordinates"]), generator=generator)

    def gradient(theta: torch.Tensor) -> tuple[float, torch.Tensor]:
        difference = theta - target
        return float(difference.square().sum() / 2), difference

    return gradient


client = aquila.flower.client_app(make_method, make_device)
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    aquila.flower.strategy(
        make_method(context),
        torch.zeros(int(config["coordinates"])),
        devices=int(config["devices"]),
        rounds=int(config["rounds"]),
    ).start(grid)
