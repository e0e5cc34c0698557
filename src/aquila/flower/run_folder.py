"""The server's folder of a run: identity, records, checkpoint and archive."""

import json
import secrets
from collections.abc import Sequence
from logging import getLogger
from pathlib import Path

from aquila.flower.device_files import RUN_NAME_PATTERN
from aquila.runtime.files import atomic_write
from aquila.runtime.fingerprint import fingerprint_differences
from aquila.runtime.persist import SavedStateError, load_server, save_server
from aquila.runtime.reply_archive import FolderArchive
from aquila.runtime.server_session import ServerSession
from aquila.sim.records import Record, append_record, read_records, write_records

LOG = getLogger("flwr.aquila")


class ServerRunFolder:
    """Saves a run so that another process can resume it after any closed round.

    `fingerprint` is a text that identifies the run's settings. The run's name is random. Devices
    store their states under this name, because two runs with the same settings must not share
    states. `is_resumed` says whether an earlier process has started the run.
    """

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self.folder = folder
        self.checkpoint = folder / "server.state"
        self.archive = FolderArchive(folder / "archive")
        self._attempts = folder / "attempts.json"
        self._samples = folder / "samples.json"
        self._releases = folder / "privacy.json"
        description = folder / "run.json"
        self.is_resumed = description.exists()
        self.name = self._read_or_create_name(description, fingerprint)

    def resume(self, session: ServerSession) -> list[Record]:
        """Restore a new session to the last closed round, and return the records up to it."""
        try:
            load_server(self.checkpoint, session)
        except SavedStateError as error:
            raise ValueError(f"{self.checkpoint} cannot be resumed: {error}") from None
        records = read_records(self.folder)
        if len(records) < session.round:
            raise ValueError(
                f"{self.folder} cannot be resumed: it has {len(records)} records, but its "
                f"checkpoint is of round {session.round}"
            )
        write_records(self.folder, records[: session.round])
        return records[: session.round]

    def load_samples(self) -> list[int]:
        """Return the saved number of samples per device; an empty list if there is none."""
        if not self._samples.exists():
            return []
        try:
            return [int(count) for count in json.loads(self._samples.read_text())]
        except (ValueError, TypeError):
            raise ValueError(f"{self._samples} does not hold numbers of samples") from None

    def save_samples(self, samples: Sequence[int]) -> None:
        """Save the number of samples per device, the weights of the whole run."""
        atomic_write(self._samples, json.dumps(list(samples)).encode(), private=True)

    def count_release(self, closed_rounds: int) -> int:
        """Count one more round that used private data, and return their number.

        The count never goes down, also if an older state of the server is restored.
        """
        try:
            earlier = int(json.loads(self._releases.read_text()))
        except FileNotFoundError:
            earlier = closed_rounds - 1
        except (ValueError, TypeError):
            raise ValueError(f"{self._releases} does not hold a number of rounds") from None
        atomic_write(self._releases, json.dumps(earlier + 1).encode(), private=True)
        return earlier + 1

    def begin_round(self, round_number: int) -> int:
        """Record that a round begins, and return the attempt number, from 1.

        A server that dies during a round sends the orders of this round again when it is resumed.
        """
        try:
            last_round, attempts = map(int, json.loads(self._attempts.read_text()))
        except (OSError, ValueError, TypeError):
            last_round, attempts = round_number, 0
        attempts = attempts + 1 if last_round == round_number else 1
        if attempts > 1:
            LOG.warning("round %d was interrupted; its orders are sent again", round_number)
        content = json.dumps([round_number, attempts]).encode()
        atomic_write(self._attempts, content, private=True)
        return attempts

    def save_round(self, record: Record, session: ServerSession) -> None:
        """Save a closed round: its record and the server state."""
        append_record(self.folder, record, sync=True)
        save_server(self.checkpoint, session)

    def _read_or_create_name(self, path: Path, fingerprint: str) -> str:
        if not path.exists():
            name = secrets.token_hex(8)
            content = json.dumps({"run": name, "fingerprint": fingerprint}).encode()
            atomic_write(path, content, private=True)
            return name
        try:
            saved = json.loads(path.read_text())
            name, saved_fingerprint = str(saved["run"]), str(saved["fingerprint"])
        except (ValueError, KeyError, TypeError):
            name = saved_fingerprint = ""
        if not RUN_NAME_PATTERN.fullmatch(name):
            raise ValueError(f"{path} does not describe a run")
        if differences := fingerprint_differences(saved_fingerprint, fingerprint):
            raise ValueError(
                f"{self.folder} holds a different run and cannot be resumed: "
                f"{'; '.join(differences)}"
            )
        return name
