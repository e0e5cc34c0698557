"""The server side: runs the rounds over Flower's grid."""

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from logging import getLogger
from pathlib import Path

from flwr.serverapp import Grid

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Method
from aquila.core.vector import Vector, check_theta0, digest
from aquila.flower.file_lock import file_lock
from aquila.flower.keys import read_keys
from aquila.flower.registry import DeviceRegistry
from aquila.flower.rounds import RoundState, run_round
from aquila.flower.run_folder import ServerRunFolder
from aquila.flower.transport import Overhead
from aquila.runtime.norm_limit import NormLimit
from aquila.runtime.options import RunOptions
from aquila.runtime.server_session import ServerSession
from aquila.sim.records import Record, make_record

Evaluate = Callable[[Vector], Mapping[str, float]]

LOCK_WAIT_SECONDS = 90.0
"""How long a run waits for an earlier process that still uses its folder."""

LOG = getLogger("flwr.aquila")


@dataclass(frozen=True)
class RoundOverhead:
    """Flower's overhead in one round, per direction, and the duration of the round."""

    round: int
    seconds: float
    uplink: Overhead
    downlink: Overhead


@dataclass(frozen=True)
class RunResult:
    """The final model, all records, and Flower's overhead in the rounds of this process."""

    theta: Vector
    records: list[Record]
    overheads: list[RoundOverhead]


@dataclass(frozen=True)
class Strategy:
    """A run on Flower. Call `start(grid)` in the main function of a ServerApp."""

    method: Method
    theta0: Vector
    fleet: Fleet
    rounds: int
    seed: int
    deadline_seconds: float
    wait_seconds: float
    min_devices: int
    participation: float
    downlink_error: float
    checkpoint_folder: Path | None
    keys: Mapping[DeviceId, bytes] | None
    limit: NormLimit | None
    evaluate: Evaluate | None
    on_record: Callable[[Record], None] | None

    def start(self, grid: Grid) -> RunResult:
        """Run all rounds, or the rounds that remain after a checkpoint."""
        with ExitStack() as stack:
            folder = self.checkpoint_folder
            if folder is None:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aquila-")))
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(
                file_lock(folder / "lock", f"the run in {folder}", LOCK_WAIT_SECONDS)
            )
            run_folder = ServerRunFolder(folder, self._fingerprint())
            session = ServerSession(
                self.method, self.theta0.clone(), self.fleet, self.seed,
                RunOptions(participation=self.participation, downlink_error=self.downlink_error),
                archive=run_folder.archive, limit=self.limit,
            )  # fmt: skip
            records = run_folder.resume(session)
            overheads = self._run(grid, run_folder, session, records)
            return RunResult(session.theta.clone(), records, overheads)

    def _run(
        self, grid: Grid, run_folder: ServerRunFolder, session: ServerSession, records: list[Record]
    ) -> list[RoundOverhead]:
        """Run the remaining rounds, and append their records to `records`."""
        registry = DeviceRegistry(len(self.fleet.devices), {"method": repr(self.method)}, self.keys)
        config: dict[str, str | int] = {"run": run_folder.name, "seed": self.seed}
        overheads = []
        if session.round < self.rounds:
            registry.wait(grid, self.min_devices, self.wait_seconds)
        while session.round < self.rounds:
            registry.wait(grid, 1, self.wait_seconds)
            began, attempts = time.monotonic(), run_folder.begin_round(session.round)
            state, outcome = run_round(
                grid, session, registry.nodes_by_device, config, self.deadline_seconds
            )
            metrics = self.evaluate(session.theta.clone()) if self.evaluate else {}
            notes = [state.notes[device] for device in sorted(state.notes)]
            record = make_record(state.number, outcome, notes, metrics)
            if attempts > 1:
                record = replace(record, notes={**record.notes, "attempts": attempts})
            records.append(record)
            overheads.append(_overhead(state, time.monotonic() - began))
            run_folder.save_round(record, session)
            _log(record, overheads[-1], self.rounds)
            if self.on_record is not None:
                self.on_record(record)
        return overheads

    def _fingerprint(self) -> str:
        slices = self.fleet.slices_digest
        return (
            f"method {self.method!r}\nmodel {digest(self.theta0)}\ngroups {self.fleet.groups}\n"
            f"seed {self.seed}\nparticipation {self.participation}"
            + (f"\ndownlink_error {self.downlink_error}" if self.downlink_error != 0 else "")
            + (f"\nslices {slices}" if slices != "all" else "")
        )


def strategy(
    method: Method,
    theta0: Vector,
    *,
    devices: int,
    rounds: int,
    seed: int = 0,
    deadline_seconds: float = 600.0,
    wait_seconds: float = 600.0,
    min_devices: int | None = None,
    participation: float = 1.0,
    downlink_error: float = 0.0,
    fleet: Fleet | None = None,
    checkpoint_folder: Path | str | None = None,
    keys_folder: Path | str | None = None,
    limit: NormLimit | None = None,
    evaluate: Evaluate | None = None,
    on_record: Callable[[Record], None] | None = None,
) -> Strategy:
    """Return a run of the method over so many devices, to be started on a grid.

    The run begins when `min_devices` (default: all) are there, which may take `wait_seconds`. A
    round waits `deadline_seconds` for replies; devices that are late or gone count as lost, and
    those that come later take part from the next round on. With a `checkpoint_folder`, records and
    all that is needed to go on are kept there after every round, and a run found there is resumed.
    With a `keys_folder`, which holds the `device-N.pub` of every device, nodes without the key of
    the device that they say they are take no part. A `limit` bounds the norm of uploads. With
    `downlink_error` above 0 devices that replied to the last round are sent the model as a
    difference, coded up to this relative error. `evaluate` judges the model after every round.
    """
    _check(method, theta0, rounds, seed)
    if limit is not None:
        limit.check(method.server)
    if fleet is None:
        fleet = Fleet.uniform(theta0.numel(), devices, theta0.device)
    minimum = devices if min_devices is None else min_devices
    if devices < 1 or len(fleet.devices) != devices or fleet.dimension != theta0.numel():
        raise ValueError(
            f"{devices} devices and a model of {theta0.numel()} coordinates, but a fleet of "
            f"{len(fleet.devices)} devices and {fleet.dimension} coordinates"
        )
    if not 1 <= minimum <= devices:
        raise ValueError(f"min_devices must be from 1 to {devices}, not {minimum}")
    if not min(deadline_seconds, wait_seconds) > 0:
        raise ValueError("deadline_seconds and wait_seconds must be above 0")
    folder = None if checkpoint_folder is None else Path(checkpoint_folder)
    keys = None if keys_folder is None else read_keys(Path(keys_folder), devices)
    return Strategy(
        method, theta0, fleet, rounds, seed, deadline_seconds, wait_seconds, minimum, participation,
        downlink_error, folder, keys, limit, evaluate, on_record,
    )  # fmt: skip


def _check(method: Method, theta0: Vector, rounds: int, seed: int) -> None:
    if not isinstance(method, Method):
        raise TypeError(f"method must be the result of aquila.create(...), not {method!r}")
    check_theta0(theta0)
    if rounds < 0:
        raise ValueError(f"rounds must be at least 0, not {rounds}")
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must be from 0 to 2**63 - 1, not {seed}")


def _overhead(state: RoundState, seconds: float) -> RoundOverhead:
    return RoundOverhead(state.number, seconds, state.uplink, state.downlink)


def _log(record: Record, overhead: RoundOverhead, rounds: int) -> None:
    loss = "" if record.loss is None else f"loss {record.loss:.4g}, "
    metrics = "".join(f", {name} {value:.4g}" for name, value in record.metrics.items())
    LOG.info(
        "round %d: %s%d uploads, %d skips, %d lost, uplink %d bytes + %d of Flower overhead%s, "
        "%.1f s, %d of %d done",
        record.round, loss, record.uploads, record.skips, record.lost + record.refused,
        record.uplink_bytes, overhead.uplink.bytes, metrics, overhead.seconds,
        record.round + 1, rounds,
    )  # fmt: skip
