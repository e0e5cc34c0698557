"""The simulation loop: rounds between a server and devices that share this process."""

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Method, check_method
from aquila.core.parameter import check_whole_number
from aquila.core.random import Key, Purpose
from aquila.core.vector import Vector, check_theta0, digest
from aquila.core.wire import unpack
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.nan_guard import NonFiniteError
from aquila.runtime.options import RunOptions, check_options
from aquila.runtime.server_session import ServerSession
from aquila.runtime.services import Services, keep_in_memory
from aquila.runtime.traffic import Traffic, cost_of
from aquila.sim.executor import executor_for
from aquila.sim.garbage import rare_collections
from aquila.sim.link import Link
from aquila.sim.network import Network, RoundClock
from aquila.sim.oracle import Device, as_shard, owned_rows_of, samples_of
from aquila.sim.order_reader import OrderReader
from aquila.sim.protection import Protection
from aquila.sim.records import Evaluate, Record, RoundOutcome, make_record
from aquila.sim.round_work import RoundWork
from aquila.sim.state_store import make_state_store
from aquila.training.data_digest import describe_shards

QUERY_LINK = 2
"""Last integer of the keys that decide which queries and answers are lost."""


class Simulation:
    """A run that advances round by round and can be inspected between rounds.

    Args:
        method: The method, made by `aquila.create`.
        theta0: The initial model.
        devices: Per device a function theta -> (loss, gradient), an oracle, or a shard.
        seed: Seed of all random numbers of the run.
        options: How the run is carried out. The results do not depend on the executor, the
            workers and the memory for states.
    """

    def __init__(
        self,
        method: Method,
        theta0: Vector,
        devices: Sequence[Device],
        seed: int = 0,
        options: RunOptions = RunOptions(),
    ) -> None:
        _check_arguments(method, theta0, devices, options)
        self.seed = check_whole_number("seed", seed, 0)
        self.fleet = _fleet_of(theta0, devices, options)
        self.link = Link(options.uplink_loss, options.downlink_loss)
        self.network = Network.of(options, len(devices), self.seed)
        # frames never leave this process, so their checksums need no check
        services = Services(
            unpack=partial(unpack, trusted=True),
            links=None if self.network is None else self.network.states,
        )
        self.server = ServerSession(
            method, theta0.clone(), self.fleet, seed, options, services=services
        )
        self._executor = executor_for(
            theta0.device, _are_thread_safe(devices), options.workers, options.executor
        )
        if options.executor == "batched":
            _check_batchable(devices)
        self.fingerprint = self._fingerprint(method, theta0, options)
        if options.out is not None:
            self.fingerprint += f"\n{describe_shards(devices)}"
        self._order_reader = OrderReader(theta0.device)
        self.order_cost = self._order_reader.cost
        self.on_nan = options.on_nan
        self.protection = Protection(options, len(devices))
        self.with_reference: set[DeviceId] = set()
        self.devices = self._make_sessions(method, devices, options)
        self._check_dimensions(devices)
        self.fingerprint += _describe_work(devices)

    @property
    def theta(self) -> Vector:
        """The current model, which the next round sends."""
        return self.server.theta

    @property
    def evaluated_model(self) -> Vector:
        """The model to evaluate and save: theta, or the average if the options ask for one."""
        return self.server.evaluated_model

    def advance(self, evaluate: Evaluate | None = None) -> Record:
        """Run one round and return its record; `evaluate` measures the model after it."""
        with rare_collections(len(self.devices)):
            return self._run_round(evaluate)

    def _run_round(self, evaluate: Evaluate | None) -> Record:
        # open the round and send the orders
        number, traffic = self.server.round, Traffic()
        clock = None if self.network is None else RoundClock(self.network, number)
        self._ask_losses(traffic, clock)
        orders, reached, sent, arrived = self.server.open_round(), list[DeviceId](), 0, 0
        # the devices answer, and their replies are delivered; others replace those that fail
        while orders:
            work = RoundWork(self, orders, traffic, clock)
            arrived += self._executor.run(work)
            reached += work.devices
            sent += len(orders)
            orders = self.server.open_replacements() if clock is None else {}

        # close the round and acknowledge its replies
        failed = set(self.server.guard.failed)
        if reason := self.server.fatal_reason():
            raise NonFiniteError(reason)
        replies = self.server.close_round()
        self._order_reader.clear()
        self._release_references(reached)
        for device in reached:  # now, not with the next order: this frees a state and a reply
            self.devices[device].apply_ack(self.server.acks[device])

        # record the round
        metrics = evaluate(self.evaluated_model.clone()) if evaluate else {}
        notes = {device: self.devices[device].notes for device in reached if device not in failed}
        lost = sent - arrived
        cost = None if clock is None else clock.cost(all_arrived=not lost)
        outcome = RoundOutcome.of(
            traffic, replies, lost, cost, self.protection.outcome(self.server)
        )
        return make_record(number, outcome, notes, self.fleet, metrics)

    def _ask_losses(self, traffic: Traffic, clock: RoundClock | None) -> None:
        """Ask the candidates of the round for their losses, if the selection needs them."""
        queries = self.server.open_query()
        present = set(queries if clock is None else clock.start(list(queries)))
        for device, query in queries.items():
            key = Key((self.seed, self.server.round, device, Purpose.LINK)).child(QUERY_LINK)
            traffic.add_downlink(device, self._order_reader.cost(query))
            if device not in present or not self.link.order_arrives(key):
                continue
            try:
                answer = self.devices[device].handle(query)
            except NonFiniteError as error:
                if self.on_nan != "quarantine":
                    raise
                self.server.report_failure(device, str(error))
                continue
            traffic.add_uplink(device, cost_of(answer))
            if clock is not None:
                clock.add_answer(device, traffic)
            if self.link.reply_arrives(key):
                self.server.receive_loss(device, answer)

    def _release_references(self, reached: list[DeviceId]) -> None:
        """Drop the references of devices that no later order builds on.

        The server sends such a device a whole model next time.
        """
        self.with_reference.update(reached)
        late = {d for d in self.with_reference.difference(reached) if not self.server.can_follow(d)}
        for device in late:
            self.devices[device].reference = None
        self.with_reference -= late

    def _make_sessions(
        self, method: Method, devices: Sequence[Device], options: RunOptions
    ) -> list[DeviceSession]:
        """Return a session per device. The devices of a group share their initial state."""
        likes, groups = self.fleet.restrict(self.theta), self.fleet.groups
        initial_states = [method.device.init(like) for like in likes]
        store = make_state_store(initial_states, self.fleet, options)
        services = Services(
            unpack=self._order_reader.read,
            resolve_model=self._order_reader.resolve_model,
            store_state=keep_in_memory if store is None else store.save,
        )
        return [
            DeviceSession(
                method, number, as_shard(device), likes[groups[number]], self.seed, options,
                initial_state=initial_states[groups[number]], services=services,
            )
            for number, device in enumerate(devices)
        ]  # fmt: skip

    def _check_dimensions(self, devices: Sequence[Device]) -> None:
        for number, device in enumerate(devices):
            dimension = getattr(device, "dimension", None)
            expected = self.fleet.dimension_of(number)
            if dimension is not None and dimension != expected:
                raise ValueError(
                    f"device {number} trains {dimension} coordinates, but the fleet gives it "
                    f"{expected}; pass RunOptions(fleet=problem.fleet)"
                )

    def _fingerprint(self, method: Method, theta0: Vector, options: RunOptions) -> str:
        """Return the text that a checkpoint must match, with one line per property of the run."""
        participation, error = options.participation, options.downlink_error
        return (
            f"method {method!r}\nmodel {digest(theta0)}\n{_describe_fleet(self.fleet)}\n"
            f"seed {self.seed}\nlink {self.link!r}\non_nan {options.on_nan}\n"
            + (f"participation {participation}\n" if participation != 1 else "")
            + (f"downlink_error {error}\n" if error != 0 else "")
            + ("relay_uploads True\n" if options.relay_uploads else "")
            + "".join(f"{name} {value}\n" for name, value in options.recipe.items())
            + ("" if self.network is None else self.network.fingerprint)
            + options.identity
        )


def _fleet_of(theta0: Vector, devices: Sequence[Device], options: RunOptions) -> Fleet:
    """Return the fleet of the options, or one whose devices hold the whole model.

    It has the weights and the owners of rows that the options ask for.
    """
    fleet = options.fleet or Fleet.uniform(theta0.numel(), len(devices), theta0.device)
    if options.rows == "owners":
        fleet = fleet.with_owned_rows(
            [owned_rows_of(n, as_shard(device)) for n, device in enumerate(devices)]
        )
    if options.weights == "samples":
        fleet = fleet.with_weights(
            [samples_of(n, as_shard(device)) for n, device in enumerate(devices)]
        )
    return fleet


def _are_thread_safe(devices: Sequence[Device]) -> bool | None:
    """Whether devices may compute at the same time, None if one of them does not say."""
    answers = {getattr(device, "thread_safe", None) for device in devices}
    if False in answers:
        return False
    return None if None in answers else True


def _check_batchable(devices: Sequence[Device]) -> None:
    for number, device in enumerate(devices):
        if getattr(device, "batched", None) is None:
            raise ValueError(
                f"device {number} cannot run batched; this needs full gradients of a module "
                "without dropout, in float32 on a CPU"
            )


def _describe_fleet(fleet: Fleet) -> str:
    groups, slices = hashlib.sha256(repr(fleet.groups).encode()), fleet.slices_digest
    devices = f"devices {len(fleet.devices)} in groups {groups.hexdigest()[:16]}"
    if set(fleet.weights) != {1.0}:
        weights = hashlib.sha256(repr(fleet.weights).encode())
        devices += f" with weights {weights.hexdigest()[:16]}"
    if fleet.owners is not None:
        devices += f" with owners of rows {fleet.owners.digest}"
    return devices if slices == "all" else f"{devices}, which hold {slices}"


def _describe_work(devices: Sequence[Device]) -> str:
    """Return the lines of a fingerprint that identify the local work of devices that tell it."""
    works: dict[int, Any] = {id(work): work for work in (getattr(d, "work", None) for d in devices)}
    texts = (getattr(work, "fingerprint", "") for work in works.values())
    return "".join(dict.fromkeys(texts))


def _check_arguments(
    method: Method, theta: Vector, devices: Sequence[Device], options: RunOptions
) -> None:
    check_method(method)
    check_theta0(theta)
    check_options(options)
    if not isinstance(options.fleet, Fleet | None):
        raise TypeError(f"fleet must be the fleet of a problem, not {type(options.fleet).__name__}")
    if not hasattr(devices, "__len__"):
        raise TypeError(f"devices must be a list of devices, not {type(devices).__name__}")
    if not devices:
        raise ValueError("a run needs at least one device")
