"""The server side: runs the rounds over Flower's grid."""

import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from logging import getLogger
from pathlib import Path

from flwr.serverapp import Grid

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Method, check_method, needs_links
from aquila.core.parameter import check_whole_number
from aquila.core.vector import Vector, check_theta0, digest
from aquila.flower.death_notice import death_notice
from aquila.flower.keys import read_keys
from aquila.flower.log_file import log_file
from aquila.flower.privacy import PRIVACY_KEY, secret_key
from aquila.flower.registry import DeviceRegistry
from aquila.flower.round_loop import RoundLoop, RoundOverhead
from aquila.flower.run_folder import ServerRunFolder
from aquila.flower.signing import IDENTITY_VARIABLE, ServerIdentity, read_server_identity
from aquila.flower.transport import SAMPLES_KEY, Value
from aquila.runtime.file_lock import LOCK_FILE, file_lock
from aquila.runtime.files import make_folder
from aquila.runtime.frame_spool import FrameSpool
from aquila.runtime.norm_limit import NormLimit
from aquila.runtime.options import LINK_OPTIONS, RunOptions, option_parameters
from aquila.runtime.privacy import check_privacy, describe_privacy
from aquila.runtime.sample_limit import limit_samples
from aquila.runtime.server_session import ServerSession
from aquila.runtime.services import Services
from aquila.sim.callbacks import Callbacks, OnRecord, RunStart
from aquila.sim.protection import Protection
from aquila.sim.records import Evaluate, Record
from aquila.sim.stopping import StoppingRule

SIMULATOR_OPTIONS = {
    "uplink_loss", "downlink_loss", "on_nan", "executor", "workers", "state_memory",
    *LINK_OPTIONS,
}  # fmt: skip
"""Fields of `RunOptions` that have no effect on Flower."""

LOCK_WAIT_SECONDS = 90.0
"""How long a run waits for an earlier process that still uses its folder."""

LOG = getLogger("flwr.aquila")


@dataclass(frozen=True)
class RunResult:
    """The final model, all records, and Flower's overhead in the rounds of this process."""

    theta: Vector
    records: list[Record]
    overheads: list[RoundOverhead]


@dataclass(frozen=True)
class Deployment:
    """How a run on Flower treats its devices.

    Args:
        deadline_seconds: How long a round waits for replies. Later replies count as lost.
        wait_seconds: How long to wait for enough devices to connect.
        min_devices: Connected devices that the first round needs. Default: all.
        keys_folder: Folder with the public key `device-N.pub` of every device. If set, a node
            without the key of its device takes no part.
        limit: Bound on the norm of uploads, besides that of `RunOptions.upload_limit`.
        max_sample_ratio: With weights by samples, the largest number of samples that counts, as a
            multiple of the median. Devices report these numbers themselves.
        identity_folder: Folder of the keys that sign messages. Default: `$AQUILA_IDENTITY`, which
            a server of `aquila deploy` has. If set, only replies that their device signed count.
    """

    deadline_seconds: float = 600.0
    wait_seconds: float = 600.0
    min_devices: int | None = None
    keys_folder: Path | str | None = None
    limit: NormLimit | None = None
    max_sample_ratio: float = 10.0
    identity_folder: Path | str | None = None

    def __post_init__(self) -> None:
        if not self.max_sample_ratio >= 1:
            raise ValueError(f"max_sample_ratio must be at least 1, not {self.max_sample_ratio}")
        if not min(self.deadline_seconds, self.wait_seconds) > 0:
            raise ValueError("deadline_seconds and wait_seconds must be above 0")


@dataclass(frozen=True)
class Strategy:
    """A run on Flower. Call `start(grid)` in the main function of a ServerApp."""

    method: Method
    theta0: Vector
    fleet: Fleet
    rounds: int
    seed: int
    evaluate: Evaluate | None
    options: RunOptions
    deployment: Deployment
    keys: Mapping[DeviceId, bytes] | None
    identity: ServerIdentity | None = None

    def start(self, grid: Grid, on_record: OnRecord | None = None) -> RunResult:
        """Run all rounds, or the rounds that remain after a checkpoint.

        `on_record` is called with the record of each round that was run, or a list of such
        functions. If one of them returns True, the run ends.
        """
        callbacks = Callbacks(on_record)
        rule = StoppingRule(self.options, self.evaluate is not None)
        with ExitStack() as stack:
            if self.options.out is None:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aquila-")))
            else:
                folder = Path(self.options.out)
            make_folder(folder)
            stack.enter_context(
                file_lock(
                    folder / LOCK_FILE, f"the run in {folder}", LOCK_WAIT_SECONDS, LOG.warning
                )
            )
            stack.enter_context(death_notice(str(folder)))
            run_folder = ServerRunFolder(folder, self._fingerprint(), self.options)
            if self.options.out is not None:
                stack.enter_context(log_file(folder))
            if self.identity is not None:
                LOG.info("orders and replies are signed")
            registry = self._registry(run_folder)
            fleet = self._weighted_fleet(grid, registry, run_folder)
            protection = Protection(self.options, len(fleet.devices), run_folder.count_release)
            session = ServerSession(
                self.method, self.theta0.clone(), fleet, self.seed,
                self.options, archive=run_folder.archive, limit=self.deployment.limit,
                services=Services(secret_key=secret_key, new_spool=partial(FrameSpool, folder)),
            )  # fmt: skip
            records = run_folder.resume(session)
            rule.resume(records)
            options = replace(self.options, resume=run_folder.is_resumed)
            start = RunStart(self.method, self.rounds, self.seed, options, tuple(records))
            stack.enter_context(callbacks.opened(start))
            loop = RoundLoop(self, grid, registry, run_folder, session, records, protection)
            loop.run(rule, callbacks)
            return RunResult(session.evaluated_model.clone(), records, loop.overheads)

    def _registry(self, run_folder: ServerRunFolder) -> DeviceRegistry:
        hello: dict[str, Value] = {"method": repr(self.method)}
        if self.options.is_private:
            hello[PRIVACY_KEY] = describe_privacy(self.options)
        if self.options.weights == "samples":
            hello[SAMPLES_KEY] = run_folder.name
        if self.identity is not None:
            hello["run"] = run_folder.name
        return DeviceRegistry(len(self.fleet.devices), hello, self.keys, self.identity)

    def _weighted_fleet(
        self, grid: Grid, registry: DeviceRegistry, run_folder: ServerRunFolder
    ) -> Fleet:
        """Return the fleet with the weights of the run.

        Weights by samples are fixed before the first round, so they need all devices once. Later
        the server reads them from its folder.
        """
        if self.options.weights == "uniform":
            return self.fleet
        samples = run_folder.load_samples()
        if not samples:
            devices = self.fleet.devices
            registry.wait(grid, len(devices), self.deployment.wait_seconds)
            samples = limit_samples(
                [registry.samples[device] for device in devices], self.deployment.max_sample_ratio
            )
            run_folder.save_samples(samples)
        return self.fleet.with_weights(samples)

    def _fingerprint(self) -> str:
        slices, options = self.fleet.slices_digest, self.options
        return (
            f"method {self.method!r}\nmodel {digest(self.theta0)}\ngroups {self.fleet.groups}\n"
            f"seed {self.seed}\nparticipation {options.participation}"
            + (f"\ndownlink_error {options.downlink_error}" if options.downlink_error != 0 else "")
            + ("\nrelay_uploads True" if options.relay_uploads else "")
            + (f"\nslices {slices}" if slices != "all" else "")
            + "".join(f"\n{name} {value}" for name, value in options.recipe.items())
            + (f"\nidentity {options.identity}" if options.identity else "")
        )


def strategy(
    method: Method,
    theta0: Vector,
    devices: int,
    rounds: int,
    seed: int = 0,
    *,
    evaluate: Evaluate | None = None,
    options: RunOptions = RunOptions(),
    deployment: Deployment = Deployment(),
) -> Strategy:
    """Return a run of the method over Flower, to be started on a grid.

    Args:
        method: What devices and server compute, from `aquila.create`.
        theta0: The initial model, one flat vector.
        devices: Number of devices.
        rounds: Number of rounds, those of a resumed run included.
        seed: Seed of every random number in the run.
        evaluate: Returns metrics of a model, by name. It is called every
            `options.evaluate_every` rounds and after the last round.
        options: How the run is carried out. A run found in `options.out` is always resumed, and
            every round is saved there. Options of the simulator must keep their defaults.
        deployment: How devices are waited for, identified and limited.
    """
    _check_arguments(method, theta0, rounds, seed)
    _check_options(options)
    if deployment.limit is not None:
        deployment.limit.check(method.server)
    fleet = options.fleet or Fleet.uniform(theta0.numel(), devices, theta0.device)
    if devices < 1 or len(fleet.devices) != devices or fleet.dimension != theta0.numel():
        raise ValueError(
            f"the run has {devices} devices and a model of {theta0.numel()} coordinates, but a "
            f"fleet of {len(fleet.devices)} devices and {fleet.dimension} coordinates"
        )
    check_privacy(method, fleet, options)
    needed = deployment.min_devices
    if needed is not None and not 1 <= needed <= devices:
        raise ValueError(f"min_devices must be from 1 to {devices}, not {needed}")
    folder = deployment.keys_folder
    keys = None if folder is None else read_keys(Path(folder), devices)
    options = options.for_rounds(rounds)
    return Strategy(
        method, theta0, fleet, rounds, seed, evaluate, options, deployment, keys,
        _identity(deployment, devices),
    )  # fmt: skip


def _identity(deployment: Deployment, devices: int) -> ServerIdentity | None:
    folder = deployment.identity_folder or os.environ.get(IDENTITY_VARIABLE)
    return read_server_identity(Path(folder), devices) if folder else None


def _check_arguments(method: Method, theta0: Vector, rounds: int, seed: int) -> None:
    check_method(method)
    if needs_links(method.server):
        raise ValueError(f"{method.name} needs a link model, which only the simulator has")
    check_theta0(theta0)
    check_whole_number("rounds", rounds, 0)
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must be from 0 to 2**63 - 1, not {seed}")


def _check_options(options: RunOptions) -> None:
    if options.rows == "owners":
        raise ValueError(
            "rows=owners works in the simulator only, because a Flower server does not know which "
            "classes its devices have; set rows=all"
        )
    for name, parameter in option_parameters().items():
        if name in SIMULATOR_OPTIONS and getattr(options, name) != parameter.default:
            raise ValueError(f"{name} is an option of the simulator; it has no effect on Flower")
