"""The loop: rounds of a method between a server and devices that share this process."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import get_args

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Method
from aquila.core.packet import Packet
from aquila.core.random import Key, Purpose
from aquila.core.vector import Vector
from aquila.core.wire import pack, unpack
from aquila.runtime.finite import NanPolicy
from aquila.runtime.ledger import Cost, Ledger, cost_of
from aquila.runtime.session import DeviceSession, ServerSession
from aquila.sim.beside import Beside
from aquila.sim.link import Link
from aquila.sim.oracle import Device, as_shard
from aquila.sim.records import Happened, Record, make_record

Evaluate = Callable[[Vector], Mapping[str, float]]


class Simulation:
    """A run that can be advanced round by round and looked into between rounds.

    `setting` is any text that tells this run from others with the same method, model and seed; a
    checkpoint is resumed only by a run that gives the same one.
    """

    def __init__(
        self,
        method: Method,
        theta0: Vector,
        devices: Sequence[Device],
        *,
        seed: int = 0,
        fleet: Fleet | None = None,
        link: Link | None = None,
        on_nan: NanPolicy = "stop",
        setting: str = "",
    ) -> None:
        _check_arguments(method, theta0, devices, on_nan)
        self.fleet = fleet or Fleet.uniform(theta0.numel(), len(devices), theta0.device)
        self.link = link or Link()
        self.seed = seed
        trusting = partial(unpack, trusted=True)  # both ends are here, nothing is damaged between
        self.server = ServerSession(method, theta0.clone(), self.fleet, seed, trusting)
        self._beside = Beside(theta0.device)
        self.fingerprint = (
            f"method {method!r}\nmodel {_digest(theta0)}\ngroups {self.fleet.groups}\n"
            f"seed {seed}\nlink {self.link!r}\non_nan {on_nan}\n{setting}"
        )
        self._models = ModelReader(theta0.device)
        likes = self.fleet.restrict(theta0)
        self.devices = [
            DeviceSession(
                method,
                device,
                as_shard(given),
                likes[self.fleet.groups[device]],
                seed,
                on_nan,
                self._models.read,
            )
            for device, given in enumerate(devices)
        ]
        self._check_dimensions(devices)

    def _check_dimensions(self, devices: Sequence[Device]) -> None:
        for number, device in enumerate(devices):
            held, expected = getattr(device, "dimension", None), self.fleet.dimension_of(number)
            if held is not None and held != expected:
                raise ValueError(
                    f"device {number} trains {held} coordinates, but the fleet gives it "
                    f"{expected}; pass fleet=problem.fleet"
                )

    @property
    def theta(self) -> Vector:
        """The current model."""
        return self.server.theta

    def advance(self, evaluate: Evaluate | None = None) -> Record:
        """Run one round and return its record; `evaluate` judges the model after it."""
        round = self.server.round
        ledger, replies = Ledger(), {}
        orders = self.server.open_round()
        for device, order in orders.items():
            ledger.count_down(device, self._models.cost(order.model) + cost_of(order.words))
            if self.link.order_arrives(self._link_key(device)):
                reply = self.devices[device].answer(order)
                deliver = partial(self._deliver, device, reply, ledger)
                replies[device] = self._beside.submit(deliver)
        arrived = sum(delivery.result() for delivery in replies.values())
        happened = self._close(ledger, lost=len(orders) - arrived)
        self._models.forget()
        metrics = evaluate(self.theta.clone()) if evaluate else {}
        notes = [self.devices[device].notes for device in replies]
        return make_record(round, happened, notes, metrics)

    def _deliver(self, device: DeviceId, reply: Packet, ledger: Ledger) -> bool:
        """Pack a reply, count it, and hand it to the server unless it gets lost."""
        frame = pack(reply)
        ledger.count_up(device, cost_of(frame))
        arrives = self.link.reply_arrives(self._link_key(device))
        if arrives:
            self.server.receive(device, frame)
        return arrives

    def _link_key(self, device: DeviceId) -> Key:
        return Key((self.seed, self.server.round, device, Purpose.LINK))

    def _close(self, ledger: Ledger, lost: int) -> Happened:
        replies = self.server.close_round()
        levels = {d: r.vector.bits for d, r in replies.items() if r.vector is not None}
        refused = sum(r.refused for r in replies.values())
        return Happened(ledger, levels, len(replies) - len(levels) - refused, lost, refused)


class ModelReader:
    """Reads each model frame once, though every device of a group is sent the same bytes."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._seen: dict[int, tuple[bytes, Packet, Cost]] = {}

    def read(self, frame: bytes) -> Packet:
        """Return the packet in a frame."""
        return self._entry(frame)[1]

    def cost(self, frame: bytes) -> Cost:
        """Return what a frame costs."""
        return self._entry(frame)[2]

    def forget(self) -> None:
        """Let go of the models of the round."""
        self._seen.clear()

    def _entry(self, frame: bytes) -> tuple[bytes, Packet, Cost]:
        if id(frame) not in self._seen:  # the entry keeps the frame, so that its id stays its own
            packet = unpack(frame, device=self._device, trusted=True)
            self._seen[id(frame)] = frame, packet, cost_of(frame)
        return self._seen[id(frame)]


def _digest(theta: Vector) -> str:
    content = theta.detach().cpu().numpy().tobytes()
    return f"{theta.numel()} x {theta.dtype} {hashlib.sha256(content).hexdigest()[:16]}"


def _check_arguments(
    method: Method, theta: Vector, devices: Sequence[Device], on_nan: NanPolicy
) -> None:
    if not isinstance(method, Method):
        raise TypeError(f"a method is made by aquila.create(...), not {method!r}")
    if not isinstance(theta, torch.Tensor):
        raise TypeError(f"theta0 must be a torch tensor, not {type(theta).__name__}")
    if theta.ndim != 1 or theta.dtype not in (torch.float32, torch.float64) or not len(theta):
        raise ValueError(
            "theta0 must be a flat float32 or float64 vector, "
            f"not {tuple(theta.shape)} {theta.dtype}"
        )
    if not torch.isfinite(theta).all():
        raise ValueError("theta0 holds NaN or infinite numbers")
    if not devices:
        raise ValueError("a run needs at least one device")
    if on_nan not in get_args(NanPolicy):
        raise ValueError(f"on_nan must be one of {', '.join(get_args(NanPolicy))}, not {on_nan!r}")
