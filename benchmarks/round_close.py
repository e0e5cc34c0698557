"""Time and memory of a Flower server that receives many replies and closes a round.

    python benchmarks/round_close.py --devices 100 --coordinates 11000000 --method aquila

The server is the real one, with signatures, archive and saved state. A grid that answers orders
with recorded frames replaces Flower's network. Prints one JSON line. Per round it has the seconds
from the first reply until the state is on disk, without the work of the devices, and the peak of
the memory above that before the first reply.
"""

import argparse
import json
import tempfile
import time
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from machine import cpu_name

import aquila
from aquila.core.envelope import parse, seal
from aquila.core.wire import pack
from aquila.flower import server
from aquila.flower.signing import (
    HELLO,
    INTRODUCTION,
    ORDER,
    REPLY,
    DeviceIdentity,
    ServerIdentity,
    open_message,
)
from aquila.flower.transport import CONTROL_KEY, MODEL_KEY, REPLY_KEY, content_of, frame_of
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.messages import Order
from aquila.sim.oracle import as_shard

RECORDED = 4
"""Different frames. The devices send them in turn."""
RESET_PEAK = "5"
"""What `clear_refs` of Linux needs to begin a new peak of the memory."""


@dataclass
class Meter:
    """Time and memory of one round. `devices` are seconds of work that a server does not do."""

    began: tuple = (0.0, 0.0)
    mib_before: float = 0.0
    devices: tuple = (0.0, 0.0)

    def start(self):
        Path("/proc/self/clear_refs").write_text(RESET_PEAK)
        self.mib_before = status_mib("VmRSS")
        self.began = clocks()

    def result(self):
        spent = zip(clocks(), self.began, self.devices, strict=True)
        seconds, cpu = (round(now - began - of_devices, 2) for now, began, of_devices in spent)
        return {
            "seconds": seconds,
            "cpu_seconds": cpu,
            "added_mib": round(status_mib("VmHWM") - self.mib_before),
        }


@dataclass
class RecordedGrid(Grid):
    """Answers orders with frames of a few devices. It keeps no reply."""

    method: object
    identities: list
    numbers: object = field(default_factory=count)
    sent: dict = field(default_factory=dict)
    frames: list = field(default_factory=list)
    meter: Meter | None = None

    def get_nodes(self):
        return [SimpleNamespace(node_id=d + 1, public_key=b"") for d in range(len(self.identities))]

    def get_node_ids(self):
        return [node.node_id for node in self.get_nodes()]

    def push_messages(self, messages):
        numbers = [str(next(self.numbers)) for _ in messages]
        for number, message in zip(numbers, messages, strict=True):
            message.metadata.__dict__["_message_id"] = number
            self.sent[number] = message
            if is_order(message) and len(self.frames) < RECORDED:
                self.frames.append(first_reply(self.method, order_of(message), len(self.frames)))
        return numbers

    def pull_messages(self, message_ids):
        messages = [self.sent.pop(number) for number in message_ids]
        if self.meter is None and messages and is_order(messages[0]):
            self.meter = Meter()
            self.meter.start()
        began = clocks()
        replies = [self.answer(message) for message in messages]
        if self.meter is not None:
            spent = zip(self.meter.devices, clocks(), began, strict=True)
            self.meter.devices = tuple(sum_ + now - then for sum_, now, then in spent)
        return replies

    def answer(self, message):
        device = message.metadata.dst_node_id - 1
        directions = (ORDER, REPLY) if is_order(message) else (HELLO, INTRODUCTION)
        seal_of_reply = open_message(
            self.identities[device], message, device + 1, device, directions
        )
        content = content_of({"device": device}, {})
        if is_order(message):
            order, number = order_of(message), int(message.metadata.group_id)
            frame = self.frames[device % RECORDED]
            sealed = seal(frame._replace(round=number, refers_to=order.checksum))
            content = content_of({"n.loss": 1.0}, {REPLY_KEY: sealed})
        seal_of_reply.sign(content)
        return Message(content, reply_to=message)

    def set_run(self, run):
        raise NotImplementedError

    run = property(set_run)
    create_message = send_and_receive = set_run


def clocks():
    """Return the time and the processor time, which other programs hardly change."""
    return time.perf_counter(), time.process_time()


def is_order(message):
    return message.metadata.message_type.startswith("train")


def order_of(message):
    return Order(frame_of(message.content, MODEL_KEY), frame_of(message.content, CONTROL_KEY))


def first_reply(method, order, device):
    """Return the parsed frame of a device in its first round. Its gradient is random."""
    generator = torch.Generator().manual_seed(device)

    def gradient(theta):
        return 1.0, torch.randn(theta.shape, generator=generator)

    like = torch.zeros(parse(order.model).dimension)
    session = DeviceSession(method, device, as_shard(gradient), like, 0)
    return parse(pack(session.answer(order)))


def status_mib(line):
    """Return a field of /proc/self/status in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(row.split()[1]) / 1024 for row in lines if row.startswith(line))


def keys_of(devices):
    """Return the identities of a server and its devices. Simulated devices share a digester."""
    own, keys = Ed25519PrivateKey.generate(), [Ed25519PrivateKey.generate() for _ in range(devices)]
    of_server = ServerIdentity(own, tuple(key.public_key() for key in keys))
    first = DeviceIdentity(keys[0], own.public_key())
    return of_server, [replace(first, key=key) for key in keys]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=100)
    parser.add_argument("--coordinates", type=int, default=11_000_000)
    parser.add_argument("--method", default="aquila")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    method = aquila.create(arguments.method, alpha=0.1)
    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
    identity, identities = keys_of(arguments.devices)
    grid, rounds = RecordedGrid(method, identities), []

    def on_record(record):
        rounds.append({"uplink_bytes": record.uplink_bytes, **grid.meter.result()})
        grid.meter = None

    with tempfile.TemporaryDirectory() as folder:
        run = server.strategy(
            method, torch.zeros(arguments.coordinates), arguments.devices, arguments.rounds,
            options=aquila.RunOptions(out=Path(folder) / "run"),
        )  # fmt: skip
        replace(run, identity=identity).start(grid, on_record)
    print(json.dumps({**vars(arguments), "rounds_run": rounds, "machine": cpu_name()}))


if __name__ == "__main__":
    main()
