"""The loop: rounds of a method between a server and devices that share this process."""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Method
from aquila.core.packet import Packet
from aquila.core.random import Key, Purpose
from aquila.core.vector import Vector, check_theta0, digest
from aquila.core.wire import pack, unpack
from aquila.runtime.nan_guard import NanPolicy
from aquila.runtime.reference import UNNAMED, ReferenceModel, base_of, resolve_model
from aquila.runtime.session import DeviceSession, Order, ServerSession
from aquila.runtime.traffic import Cost, Traffic, cost_of
from aquila.sim.executor import ExecutorChoice, executor_for
from aquila.sim.link import Link
from aquila.sim.oracle import Device, as_shard
from aquila.sim.records import Record, RoundOutcome, make_record
from aquila.sim.state_store import StateStore, make_state_store

Evaluate = Callable[[Vector], Mapping[str, float]]


class Simulation:
    """A run that can be advanced round by round and looked into between rounds.

    `executor` says how devices get their turns: `sequential`, `batched` (gradients of many devices
    in one pass, where that gives the same bits), `threads`, or whichever is best (`auto`).
    `workers` is how many compute side by side, 0 to have it chosen. The results depend on neither.
    `participation` is the share of the devices that a round is for, drawn anew every round. With a
    `downlink_error` above 0 devices that replied to the last round are sent the model as a
    difference, coded up to this relative error. Devices' states that could take more than
    `state_memory` bytes (default: half of the machine's memory) live in a nameless file in
    `state_folder` instead.
    `identity` is any text that tells this run from others with the same method, model and seed; a
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
        workers: int = 0,
        executor: ExecutorChoice = "auto",
        participation: float = 1.0,
        downlink_error: float = 0.0,
        state_memory: int | None = None,
        state_folder: Path | None = None,
        identity: str = "",
    ) -> None:
        _check_arguments(method, theta0, devices, on_nan)
        self.fleet = fleet or Fleet.uniform(theta0.numel(), len(devices), theta0.device)
        self.link = link or Link()
        self.seed = seed
        unpack_trusted = partial(
            unpack, trusted=True
        )  # both ends are here, nothing is damaged between
        self.server = ServerSession(
            method,
            theta0.clone(),
            self.fleet,
            seed,
            unpack_trusted,
            participation,
            downlink_error=downlink_error,
        )
        self._executor = executor_for(theta0.device, _are_thread_safe(devices), workers, executor)
        if executor == "batched":
            _check_batchable(devices)
        self.fingerprint = (
            f"method {method!r}\nmodel {digest(theta0)}\n{_describe_fleet(self.fleet)}\n"
            f"seed {seed}\nlink {self.link!r}\non_nan {on_nan}\n"
            + (f"participation {participation}\n" if participation != 1 else "")
            + (f"downlink_error {downlink_error}\n" if downlink_error != 0 else "")
            + identity
        )
        self._orders = OrderReader(theta0.device)
        self._devices_with_model: list[DeviceId] = []
        initial_states = [method.device.init(like) for like in self.fleet.restrict(theta0)]
        store = make_state_store(initial_states, self.fleet, state_memory, state_folder)
        self.devices = self._make_sessions(method, devices, on_nan, initial_states, store)
        self._check_dimensions(devices)

    def _make_sessions(
        self,
        method: Method,
        devices: Sequence[Device],
        on_nan: NanPolicy,
        initial_states: Sequence[Any],
        store: StateStore | None,
    ) -> list[DeviceSession]:
        """Return a session for each device; those of a group start from one and the same state."""
        likes, groups = self.fleet.restrict(self.theta), self.fleet.groups
        read, save = self._orders.read, None if store is None else store.save
        return [
            DeviceSession(
                method, device, as_shard(given), likes[groups[device]], self.seed, on_nan, read,
                initial_states[groups[device]], save, self._orders.resolve_model,
            )
            for device, given in enumerate(devices)
        ]  # fmt: skip

    def _check_dimensions(self, devices: Sequence[Device]) -> None:
        for number, device in enumerate(devices):
            dimension, expected = (
                getattr(device, "dimension", None),
                self.fleet.dimension_of(number),
            )
            if dimension is not None and dimension != expected:
                raise ValueError(
                    f"device {number} trains {dimension} coordinates, but the fleet gives it "
                    f"{expected}; pass fleet=problem.fleet"
                )

    @property
    def theta(self) -> Vector:
        """The current model."""
        return self.server.theta

    def advance(self, evaluate: Evaluate | None = None) -> Record:
        """Run one round and return its record; `evaluate` judges the model after it."""
        round_number = self.server.round
        traffic, orders = Traffic(), self.server.open_round()
        for device, order in orders.items():
            traffic.add_downlink(
                device, self._orders.cost(order.model) + self._orders.cost(order.control)
            )
        reached = [d for d in orders if self.link.order_arrives(self._link_key(d))]
        arrived = self._executor.run_turns(
            reached,
            lambda device: self.devices[device].answer(orders[device]),
            partial(self._deliver, traffic),
            partial(self._prefetch, orders),
        )
        outcome = self._close_round(traffic, lost=len(orders) - sum(arrived))
        self._orders.clear()
        self._release_models(reached)
        for device in reached:  # what the next order would say; until then, two states and a reply
            self.devices[device].apply_ack(self.server.acks[device])
        metrics = evaluate(self.theta.clone()) if evaluate else {}
        notes = [self.devices[device].notes for device in reached]
        return make_record(round_number, outcome, notes, metrics)

    def _release_models(self, reached: list[DeviceId]) -> None:
        """Keep no model of a round before: who was not reached in this one is sent a whole one."""
        for device in set(self._devices_with_model).difference(reached):
            self.devices[device].reference = None
        self._devices_with_model = reached

    def _prefetch(self, orders: Mapping[DeviceId, Order], devices: Sequence[DeviceId]) -> None:
        """Tell those that compute for several devices at once who comes, and with which model."""
        coming: dict[tuple[int, int], tuple[Vector, list[Any]]] = {}
        for device in devices:
            shard: Any = self.devices[device].shard
            batched = getattr(shard, "batched", None)
            if batched is None:
                continue
            model = self.devices[device].model_of(orders[device])
            if model is not None:
                key = id(batched), id(model.theta)
                coming.setdefault(key, (model.theta, []))[1].append(shard)
        for theta, shards in coming.values():
            shards[0].batched.prefetch(theta, shards)

    def _deliver(self, traffic: Traffic, device: DeviceId, reply: Packet) -> bool:
        """Pack a reply, count it, and hand it to the server unless it gets lost."""
        frame = pack(reply)
        self.devices[device].record_sent(reply, frame)
        traffic.add_uplink(device, cost_of(frame))
        arrives = self.link.reply_arrives(self._link_key(device))
        if arrives:
            self.server.receive(device, frame)
        return arrives

    def _link_key(self, device: DeviceId) -> Key:
        return Key((self.seed, self.server.round, device, Purpose.LINK))

    def _close_round(self, traffic: Traffic, lost: int) -> RoundOutcome:
        replies = self.server.close_round()
        levels = {d: r.vector.bits for d, r in replies.items() if r.vector is not None}
        refused = sum(r.refused for r in replies.values())
        return RoundOutcome(traffic, levels, len(replies) - len(levels) - refused, lost, refused)


class OrderReader:
    """Reads each frame of an order once, though many devices are sent the same bytes."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._frames: dict[int, tuple[bytes, Packet, Cost]] = {}
        self._models: dict[tuple[int, bool], ReferenceModel | None] = {}
        self._lock = threading.Lock()

    def read(self, frame: bytes, dimension: int) -> Packet:
        """Return the packet in a frame; it was packed in this process, for the dimension asked."""
        return self._entry(frame)[1]

    def cost(self, frame: bytes) -> Cost:
        """Return what a frame costs."""
        return self._entry(frame)[2]

    def resolve_model(
        self, model: Packet, references: Sequence[ReferenceModel]
    ) -> ReferenceModel | None:
        """Return the model that a frame stands for; devices that get to the same one share it."""
        if model.answers == UNNAMED:
            return resolve_model(model, references)
        key = id(model), base_of(model, references) is not None
        with self._lock:
            if key not in self._models:
                self._models[key] = self._shared(resolve_model(model, references))
            return self._models[key]

    def _shared(self, model: ReferenceModel | None) -> ReferenceModel | None:
        """Return the same model as another frame led to, if one did."""
        for other in self._models.values():
            if (
                model
                and other
                and (model.checksum, len(model.theta)) == (other.checksum, len(other.theta))
            ):
                return other
        return model

    def clear(self) -> None:
        """Let go of the orders of the round."""
        self._frames.clear()
        self._models.clear()

    def _entry(self, frame: bytes) -> tuple[bytes, Packet, Cost]:
        if id(frame) not in self._frames:  # the entry keeps the frame, so that its id stays its own
            packet = unpack(frame, device=self._device, trusted=True)
            self._frames[id(frame)] = frame, packet, cost_of(frame)
        return self._frames[id(frame)]


def _are_thread_safe(devices: Sequence[Device]) -> bool | None:
    """Whether devices may compute at the same time; None if one of them does not say."""
    said = {getattr(device, "thread_safe", None) for device in devices}
    return False if False in said else None if None in said else True


def _check_batchable(devices: Sequence[Device]) -> None:
    for number, device in enumerate(devices):
        if getattr(device, "batched", None) is None:
            raise ValueError(
                f"device {number} cannot compute together with others: that takes full gradients "
                "of a module without dropout, in float32 on a CPU"
            )


def _describe_fleet(fleet: Fleet) -> str:
    groups, held = hashlib.sha256(repr(fleet.groups).encode()), fleet.slices_digest
    devices = f"devices {len(fleet.devices)} in groups {groups.hexdigest()[:16]}"
    return devices if held == "all" else f"{devices}, which hold {held}"


def _check_arguments(
    method: Method, theta: Vector, devices: Sequence[Device], on_nan: NanPolicy
) -> None:
    if not isinstance(method, Method):
        raise TypeError(f"a method is made by aquila.create(...), not {method!r}")
    check_theta0(theta)
    if not devices:
        raise ValueError("a run needs at least one device")
    if on_nan not in get_args(NanPolicy):
        raise ValueError(f"on_nan must be one of {', '.join(get_args(NanPolicy))}, not {on_nan!r}")
