"""A Flower app whose devices can be delayed, killed and made to send bad frames.

Files in the control folder say how each device fails.
"""

from pathlib import Path

import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

import aquila.flower
from faults.bad_frames import with_bad_frame
from faults.lossy_grid import LossyGrid
from faults.setup import METHOD, faulty_device, theta0

correct_client = aquila.flower.client_app(
    METHOD, lambda device, context: faulty_device(device, control_folder_of(context))
)
client = ClientApp()
server = ServerApp()


def control_folder_of(context: Context) -> Path:
    return Path(str(context.run_config["control_folder"]))


@client.query("aquila")
def hello(message: Message, context: Context) -> Message:
    return correct_client(message, context)


@client.train("aquila")
def turn(message: Message, context: Context) -> Message:
    reply = correct_client(message, context)
    return with_bad_frame(reply, aquila.flower.device_number(context), control_folder_of(context))


@server.main()
def main(grid: Grid, context: Context) -> None:
    torch.set_num_threads(1)
    config = context.run_config
    aquila.flower.strategy(
        METHOD,
        theta0(),
        devices=int(config["devices"]),
        rounds=int(config["rounds"]),
        options=aquila.RunOptions(out=control_folder_of(context) / "run"),
        deployment=aquila.flower.Deployment(
            deadline_seconds=float(config["deadline"]), wait_seconds=120
        ),
    ).start(LossyGrid(grid, int(config["drop_every"])))
