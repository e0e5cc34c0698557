"""The rounds of a run on Flower: waits for devices, runs rounds, saves and records them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from logging import getLogger
from typing import TYPE_CHECKING

from flwr.serverapp import Grid

from aquila.flower.registry import DeviceRegistry
from aquila.flower.rounds import RoundState, run_round
from aquila.flower.run_folder import ServerRunFolder
from aquila.flower.transport import Overhead
from aquila.runtime.server_session import ServerSession
from aquila.sim.callbacks import Callbacks
from aquila.sim.protection import Protection
from aquila.sim.records import Record, make_record
from aquila.sim.stopping import StoppingRule

if TYPE_CHECKING:
    from aquila.flower.server import Strategy

LOG = getLogger("flwr.aquila")


@dataclass(frozen=True)
class RoundOverhead:
    """Flower's overhead in one round, per direction, and the duration of the round."""

    round: int
    seconds: float
    uplink: Overhead
    downlink: Overhead


@dataclass(frozen=True)
class RoundLoop:
    """The rounds of one process. `run` appends to `records` and `overheads`."""

    strategy: "Strategy"
    grid: Grid
    registry: DeviceRegistry
    run_folder: ServerRunFolder
    session: ServerSession
    records: list[Record]
    protection: Protection
    overheads: list[RoundOverhead] = field(default_factory=list)

    def run(self, rule: StoppingRule, callbacks: Callbacks) -> None:
        """Run the remaining rounds, unless a rule or a callback ends the run earlier."""
        deployment, rounds = self.strategy.deployment, self.strategy.rounds
        if self.session.round < rounds and rule.reason is None:
            needed = deployment.min_devices or len(self.session.fleet.devices)
            self.registry.wait(self.grid, needed, deployment.wait_seconds)
        while self.session.round < rounds:
            if rule.reason is not None:  # also that of a resumed run
                LOG.info("the run ends: %s", rule.reason)
                return
            self._run_round()
            rule.add(self.records[-1])
            if callbacks(self.records[-1]):
                LOG.info("the run ends: on_record returned True")
                return

    def _run_round(self) -> None:
        """Run, record and save one round."""
        deployment, session = self.strategy.deployment, self.session
        self.registry.wait(self.grid, 1, deployment.wait_seconds)
        began, attempts = time.monotonic(), self.run_folder.begin_round(session.round)
        config: dict[str, str | int] = {"run": self.run_folder.name, "seed": self.strategy.seed}
        state, outcome = run_round(
            self.grid, session, self.registry.nodes_by_device, config,
            deployment.deadline_seconds, self.protection, self.strategy.identity,
        )  # fmt: skip
        notes = {device: state.notes[device] for device in sorted(state.notes)}
        record = make_record(state.number, outcome, notes, session.fleet, self._evaluate())
        if attempts > 1:
            record = replace(record, notes={**record.notes, "attempts": attempts})
        self.records.append(record)
        self.overheads.append(_overhead(state, time.monotonic() - began))
        self.run_folder.save_round(record, session)
        _log(record, self.overheads[-1], self.strategy.rounds)

    def _evaluate(self) -> Mapping[str, float]:
        evaluate, done = self.strategy.evaluate, self.session.round
        due = done == self.strategy.rounds or done % self.strategy.options.evaluate_every == 0
        return evaluate(self.session.evaluated_model.clone()) if evaluate and due else {}


def _overhead(state: RoundState, seconds: float) -> RoundOverhead:
    return RoundOverhead(state.number, seconds, state.uplink, state.downlink)


def _log(record: Record, overhead: RoundOverhead, rounds: int) -> None:
    loss = "" if record.loss is None else f"loss {record.loss:.4g}, "
    metrics = "".join(f", {name} {value:.4g}" for name, value in record.metrics.items())
    metrics += "" if record.quarantined is None else f", quarantine {record.quarantined}"
    if record.epsilon is not None:
        metrics += f", epsilon {record.epsilon:.4g} at delta {record.delta:g}"
    LOG.info(
        "round %d: %s%d uploads, %d skips, %d lost, uplink %d bytes + %d of Flower overhead%s, "
        "%.1f s, %d of %d done",
        record.round, loss, record.uploads, record.skips, record.lost + record.refused,
        record.uplink_bytes, overhead.uplink.bytes, metrics, overhead.seconds,
        record.round + 1, rounds,
    )  # fmt: skip
