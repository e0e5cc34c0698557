"""A small problem on devices that can be held up, killed and made to lie, while the app runs.

What a device does beside its duty is said by files in the folder `stage`.
"""

from pathlib import Path

import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

import aquila.flower
from faults.losses import LossyGrid
from faults.scene import DEVICES, METHOD, misbehaving, theta0
from faults.spoiling import spoiled

honest = aquila.flower.client_app(
    METHOD, lambda device, context: misbehaving(device, stage_of(context))
)
client = ClientApp()
server = ServerApp()


def stage_of(context: Context) -> Path:
    return Path(str(context.run_config["stage"]))


@client.query("aquila")
def hello(message: Message, context: Context) -> Message:
    return honest(message, context)


@client.train("aquila")
def turn(message: Message, context: Context) -> Message:
    reply = honest(message, context)
    return spoiled(reply, aquila.flower.device_number(context), stage_of(context))


@server.main()
def main(grid: Grid, context: Context) -> None:
    torch.set_num_threads(1)
    config = context.run_config
    aquila.flower.strategy(
        METHOD,
        theta0(),
        devices=DEVICES,
        rounds=int(config["rounds"]),
        deadline_seconds=float(config["deadline"]),
        wait_seconds=120,
        checkpoint_folder=stage_of(context) / "run",
    ).start(LossyGrid(grid, int(config["drop_every"])))
