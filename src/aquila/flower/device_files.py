"""The state file of a device. Flower may start a new process for every message.

Each run and device has its own file. The server gives every run a random name.
"""

import os
import re
import shutil
import time
from logging import getLogger
from pathlib import Path

from aquila.core.fleet import DeviceId
from aquila.core.packet import WireError
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.file_lock import file_lock
from aquila.runtime.files import make_folder
from aquila.runtime.messages import Order
from aquila.runtime.persist import SavedStateError, load_device, save_device

RETENTION_SECONDS = 30 * 24 * 3600
"""How long the states of an abandoned run are kept."""

LOCK_WAIT_SECONDS = 600.0
"""How long a process waits for another process of the same device."""

RUN_NAME_PATTERN = re.compile(r"[0-9a-f]{16}")
LOG = getLogger("flwr.aquila")


def default_state_folder() -> Path:
    """Return the folder for the device states of this user."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "aquila" / "flower"


def answer_from_disk(session: DeviceSession, order: Order, folder: Path, run: str) -> bytes:
    """Answer an order from the state on disk, and save the new state before returning."""
    path = _state_file(folder, run, session.device)
    resource = f"the state of device {session.device}"
    with file_lock(path.with_suffix(".lock"), resource, LOCK_WAIT_SECONDS, LOG.warning):
        try:
            load_device(path, session)
        except SavedStateError as error:
            LOG.warning("device %d restarts from its initial state: %s", session.device, error)
        frame = session.handle(order)
        save_device(path, session)
    return frame


def _state_file(folder: Path, run: str, device: DeviceId) -> Path:
    if not RUN_NAME_PATTERN.fullmatch(run):  # a name from the network becomes a folder name
        raise WireError(f"{run[:32]!r} is not a valid run name; it must have 16 hexadecimal digits")
    run_folder = folder / run
    if not run_folder.exists():
        make_folder(run_folder, private=True)
        _delete_old_runs(folder)
    return run_folder / f"device-{device}.state"


def _delete_old_runs(folder: Path) -> None:
    for run in folder.iterdir():
        if (
            RUN_NAME_PATTERN.fullmatch(run.name)
            and _last_use(run) < time.time() - RETENTION_SECONDS
        ):
            shutil.rmtree(run, ignore_errors=True)


def _last_use(run: Path) -> float:
    return max((path.stat().st_mtime for path in [run, *run.glob("*.state")]), default=0.0)
