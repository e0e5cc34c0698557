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
from aquila.core.vector import Vector, check_first_model, digest
from aquila.core.wire import pack, unpack
from aquila.runtime.finite import NanPolicy
from aquila.runtime.held import NAMELESS, Held, base_of, follow
from aquila.runtime.ledger import Cost, Ledger, cost_of
from aquila.runtime.session import DeviceSession, Order, ServerSession
from aquila.sim.crew import Strategy, crew_for
from aquila.sim.link import Link
from aquila.sim.oracle import Device, as_shard
from aquila.sim.records import Happened, Record, make_record
from aquila.sim.store import StateStore, store_for

Evaluate = Callable[[Vector], Mapping[str, float]]


class Simulation:
    """A run that can be advanced round by round and looked into between rounds.

    `strategy` says how devices get their turns: `one_by_one`, `together` (gradients of many devices
    in one pass, where that gives the same bits), `side_by_side`, or whichever is best (`auto`).
    `workers` is how many compute side by side, 0 to have it chosen. The results depend on neither.
    `participation` is the share of the devices that a round is for, drawn anew every round. With a
    `downlink` above 0 devices that replied to the last round are sent the model as a difference,
    coded up to this relative error. Devices' states that could take more than `state_memory` bytes
    (default: half of the machine's memory) live in a nameless file in `state_folder` instead.
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
        workers: int = 0,
        strategy: Strategy = "auto",
        participation: float = 1.0,
        downlink: float = 0.0,
        state_memory: int | None = None,
        state_folder: Path | None = None,
        setting: str = "",
    ) -> None:
        _check_arguments(method, theta0, devices, on_nan)
        self.fleet = fleet or Fleet.uniform(theta0.numel(), len(devices), theta0.device)
        self.link = link or Link()
        self.seed = seed
        trusting = partial(unpack, trusted=True)  # both ends are here, nothing is damaged between
        self.server = ServerSession(
            method, theta0.clone(), self.fleet, seed, trusting, participation, downlink=downlink
        )
        self._crew = crew_for(theta0.device, _side_by_side(devices), workers, strategy)
        if strategy == "together":
            _check_together(devices)
        self.fingerprint = (
            f"method {method!r}\nmodel {digest(theta0)}\n{_summary(self.fleet)}\n"
            f"seed {seed}\nlink {self.link!r}\non_nan {on_nan}\n"
            + (f"participation {participation}\n" if participation != 1 else "")
            + (f"downlink {downlink}\n" if downlink != 0 else "")
            + setting
        )
        self._orders = OrderReader(theta0.device)
        self._holding: list[DeviceId] = []
        starts = [method.device.init(like) for like in self.fleet.restrict(theta0)]
        store = store_for(starts, self.fleet, state_memory, state_folder)
        self.devices = self._sessions(method, devices, on_nan, starts, store)
        self._check_dimensions(devices)

    def _sessions(
        self,
        method: Method,
        devices: Sequence[Device],
        on_nan: NanPolicy,
        starts: Sequence[Any],
        store: StateStore | None,
    ) -> list[DeviceSession]:
        """Return a session for each device; those of a group start from one and the same state."""
        likes, groups = self.fleet.restrict(self.theta), self.fleet.groups
        read, keep = self._orders.read, None if store is None else store.keep
        return [
            DeviceSession(
                method, device, as_shard(given), likes[groups[device]], self.seed, on_nan, read,
                starts[groups[device]], keep, self._orders.follow,
            )
            for device, given in enumerate(devices)
        ]  # fmt: skip

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
        ledger, orders = Ledger(), self.server.open_round()
        for device, order in orders.items():
            ledger.count_down(
                device, self._orders.cost(order.model) + self._orders.cost(order.words)
            )
        reached = [d for d in orders if self.link.order_arrives(self._link_key(d))]
        arrived = self._crew.turns(
            reached,
            lambda device: self.devices[device].answer(orders[device]),
            partial(self._deliver, ledger),
            partial(self._foresee, orders),
        )
        happened = self._close(ledger, lost=len(orders) - sum(arrived))
        self._orders.forget()
        self._let_go_of_models(reached)
        for device in reached:  # what the next order would say; until then, two states and a reply
            self.devices[device].settle(self.server.acks[device])
        metrics = evaluate(self.theta.clone()) if evaluate else {}
        notes = [self.devices[device].notes for device in reached]
        return make_record(round, happened, notes, metrics)

    def _let_go_of_models(self, reached: list[DeviceId]) -> None:
        """Keep no model of a round before: who was not reached in this one is sent a whole one."""
        for device in set(self._holding).difference(reached):
            self.devices[device].held = None
        self._holding = reached

    def _foresee(self, orders: Mapping[DeviceId, Order], devices: Sequence[DeviceId]) -> None:
        """Tell those that compute for several devices at once who comes, and with which model."""
        coming: dict[tuple[int, int], tuple[Vector, list[Any]]] = {}
        for device in devices:
            shard: Any = self.devices[device].shard
            together = getattr(shard, "together", None)
            if together is None:
                continue
            model = self.devices[device].model_of(orders[device])
            if model is not None:
                place = id(together), id(model.theta)
                coming.setdefault(place, (model.theta, []))[1].append(shard)
        for theta, shards in coming.values():
            shards[0].together.expect(theta, shards)

    def _deliver(self, ledger: Ledger, device: DeviceId, reply: Packet) -> bool:
        """Pack a reply, count it, and hand it to the server unless it gets lost."""
        frame = pack(reply)
        self.devices[device].sent(reply, frame)
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


class OrderReader:
    """Reads each frame of an order once, though many devices are sent the same bytes."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._seen: dict[int, tuple[bytes, Packet, Cost]] = {}
        self._made: dict[tuple[int, bool], Held | None] = {}
        self._lock = threading.Lock()

    def read(self, frame: bytes, dimension: int) -> Packet:
        """Return the packet in a frame; it was packed in this process, for the dimension asked."""
        return self._entry(frame)[1]

    def cost(self, frame: bytes) -> Cost:
        """Return what a frame costs."""
        return self._entry(frame)[2]

    def follow(self, model: Packet, held: Sequence[Held]) -> Held | None:
        """Return the model that a frame stands for; devices that get to the same one share it."""
        if model.answers == NAMELESS:
            return follow(model, held)
        case = id(model), base_of(model, held) is not None
        with self._lock:
            if case not in self._made:
                self._made[case] = self._shared(follow(model, held))
            return self._made[case]

    def _shared(self, model: Held | None) -> Held | None:
        """Return the same model as another frame led to, if one did."""
        for other in self._made.values():
            if model and other and (model.name, len(model.theta)) == (other.name, len(other.theta)):
                return other
        return model

    def forget(self) -> None:
        """Let go of the orders of the round."""
        self._seen.clear()
        self._made.clear()

    def _entry(self, frame: bytes) -> tuple[bytes, Packet, Cost]:
        if id(frame) not in self._seen:  # the entry keeps the frame, so that its id stays its own
            packet = unpack(frame, device=self._device, trusted=True)
            self._seen[id(frame)] = frame, packet, cost_of(frame)
        return self._seen[id(frame)]


def _side_by_side(devices: Sequence[Device]) -> bool | None:
    """Whether devices may compute at the same time; None if one of them does not say."""
    said = {getattr(device, "side_by_side", None) for device in devices}
    return False if False in said else None if None in said else True


def _check_together(devices: Sequence[Device]) -> None:
    for number, device in enumerate(devices):
        if getattr(device, "together", None) is None:
            raise ValueError(
                f"device {number} cannot compute together with others: that takes full gradients "
                "of a module without dropout, in float32 on a CPU"
            )


def _summary(fleet: Fleet) -> str:
    groups, held = hashlib.sha256(repr(fleet.groups).encode()), fleet.slices_in_words
    devices = f"devices {len(fleet.devices)} in groups {groups.hexdigest()[:16]}"
    return devices if held == "all" else f"{devices}, which hold {held}"


def _check_arguments(
    method: Method, theta: Vector, devices: Sequence[Device], on_nan: NanPolicy
) -> None:
    if not isinstance(method, Method):
        raise TypeError(f"a method is made by aquila.create(...), not {method!r}")
    check_first_model(theta)
    if not devices:
        raise ValueError("a run needs at least one device")
    if on_nan not in get_args(NanPolicy):
        raise ValueError(f"on_nan must be one of {', '.join(get_args(NanPolicy))}, not {on_nan!r}")
