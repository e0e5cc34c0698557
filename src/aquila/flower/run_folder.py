"""The server's folder of a run: identity, records, checkpoint and archive."""

import json
import secrets
from collections.abc import Sequence
from logging import getLogger
from pathlib import Path
from typing import Any

from aquila.flower.device_files import RUN_NAME_PATTERN
from aquila.runtime.archive_upgrades import convert_archive
from aquila.runtime.checkpoints import CHECKPOINTS_FOLDER, EarlierCheckpoints
from aquila.runtime.files import atomic_write, read_json
from aquila.runtime.fingerprint import fingerprint_differences
from aquila.runtime.options import RunOptions
from aquila.runtime.persist import (
    SavedStateError,
    load_server,
    read_server_positions,
    save_server,
)
from aquila.runtime.reply_archive import LOST_PART, FolderArchive, Part, Position
from aquila.runtime.server_session import ServerSession
from aquila.sim.records import (
    RECORDS_FILE,
    Record,
    append_record,
    read_records,
    write_records,
)
from aquila.sim.rollback import ARCHIVE_FOLDER, ATTEMPTS_FILE, SAMPLES_FILE, SERVER_STATE

LOG = getLogger("flwr.aquila")


class ServerRunFolder:
    """Saves a run so that another process can resume it after any closed round.

    `fingerprint` is a text that identifies the run's settings. The run's name is random. Devices
    store their states under this name, because two runs with the same settings must not share
    states. `is_resumed` says whether an earlier process has started the run.

    The checkpoints of every `options.checkpoint_every` rounds are kept for a rollback, and with
    them the parts of the archive that they need.
    """

    def __init__(self, folder: Path, fingerprint: str, options: RunOptions = RunOptions()) -> None:
        self.folder = folder
        self.checkpoint = folder / SERVER_STATE
        self.archive = FolderArchive(folder / ARCHIVE_FOLDER)
        self._earlier = EarlierCheckpoints(self.checkpoint)
        self._every, self._keep = options.checkpoint_every, options.keep_checkpoints
        self._parts_by_round: dict[int, frozenset[Part]] = {}
        self._attempts = folder / ATTEMPTS_FILE
        self._samples = folder / SAMPLES_FILE
        self._releases = folder / "privacy.json"
        description = folder / "run.json"
        self.is_resumed = description.exists()
        self._require_complete(description)
        self.name = self._read_or_create_name(description, fingerprint)

    def resume(self, session: ServerSession) -> list[Record]:
        """Restore a new session to the last closed round, and return the records up to it."""
        try:
            if not load_server(self.checkpoint, session):
                save_server(self.checkpoint, session)
        except SavedStateError as error:
            raise ValueError(f"{self.checkpoint} cannot be resumed: {error}") from None
        records = read_records(self.folder)
        if len(records) < session.round:
            raise ValueError(
                f"{self.folder} cannot be resumed: it has {len(records)} records, but its "
                f"checkpoint is of round {session.round}"
            )
        self._convert_old_archive(session, records)
        write_records(self.folder, records[: session.round])
        self._keep_checkpoint(session)
        self._read_earlier_parts(session.round)
        self._warn_of_incomplete_archive(session)
        return records[: session.round]

    def load_samples(self) -> list[int]:
        """Return the saved number of samples per device; an empty list if there is none."""
        if not self._samples.exists():
            if self.checkpoint.exists():
                raise ValueError(
                    f"{self._samples} is missing, without which the weights of the run are "
                    "unknown; restore it from a backup"
                )
            return []
        samples = read_json(self._samples)
        if not samples or not _are_counts(samples) or min(samples) == 0:
            raise ValueError(f"{self._samples} does not hold numbers of samples")
        return list(samples)

    def save_samples(self, samples: Sequence[int]) -> None:
        """Save the number of samples per device, the weights of the whole run."""
        atomic_write(self._samples, json.dumps(list(samples)).encode(), private=True)

    def count_release(self, closed_rounds: int) -> int:
        """Count one more round that used private data, and return their number.

        The count never goes down, also if an older state of the server is restored. It is at least
        the number of closed rounds, also if an older count is restored.
        """
        earlier = read_json(self._releases) if self._releases.exists() else 0
        if not _are_counts([earlier]):
            raise ValueError(f"{self._releases} does not hold a number of rounds")
        count = max(earlier + 1, closed_rounds)
        atomic_write(self._releases, json.dumps(count).encode(), private=True)
        return count

    def begin_round(self, round_number: int) -> int:
        """Record that a round begins, and return the attempt number, from 1.

        A server that dies during a round sends the orders of this round again when it is resumed.
        """
        saved: Any = read_json(self._attempts) if self._attempts.exists() else []
        is_known = _are_counts(saved) and len(saved) == 2
        last_round, attempts = saved if is_known else (round_number, 0)
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
        self._keep_checkpoint(session)
        needed = {session.round, *self._earlier.rounds()}
        self._parts_by_round = {r: p for r, p in self._parts_by_round.items() if r in needed}
        self.archive.keep_only(frozenset().union(*self._parts_by_round.values()))

    def _convert_old_archive(self, session: ServerSession, records: Sequence[Record]) -> None:
        histories = session.histories
        if histories is None or all(p.part != LOST_PART for p in histories.positions):
            return
        uploads = [[r.round for r in records if d in r.levels] for d in session.fleet.devices]
        positions = convert_archive(
            self.folder / ARCHIVE_FOLDER, self.archive, histories.positions, session.acks, uploads,
            session.round,
        )  # fmt: skip
        if positions != histories.positions:
            histories.restore(positions, histories.restarts)

    def _keep_checkpoint(self, session: ServerSession) -> None:
        """Keep the current checkpoint if it is due, and delete what no checkpoint needs."""
        round_number, due = session.round, self._every and session.round % self._every == 0
        self._parts_by_round[round_number] = _parts_of(session.snapshot().positions)
        if self._keep and due:
            self._earlier.add_current(round_number)
        self._earlier.prune(round_number, self._keep)

    def _read_earlier_parts(self, round_number: int) -> None:
        """Find out which parts of the archive the earlier checkpoints need."""
        for earlier in self._earlier.rounds():
            if earlier == round_number:
                continue
            try:
                positions = read_server_positions(self._earlier.path(earlier))
            except SavedStateError as error:
                LOG.warning("the run cannot be rolled back to round %d: %s", earlier, error)
                continue
            self._parts_by_round[earlier] = _parts_of(positions)

    def _warn_of_incomplete_archive(self, session: ServerSession) -> None:
        histories = session.histories
        if histories is not None and (incomplete := histories.incomplete_devices()):
            LOG.warning(
                "the archive in %s is incomplete for devices %s; restore it together with %s "
                "before the next round ends, or restarts of these devices are refused",
                self.folder, ", ".join(map(str, incomplete)), SERVER_STATE,
            )  # fmt: skip

    def _require_complete(self, description: Path) -> None:
        """Raise ValueError if the folder has traces of a run, but not the files to resume it."""
        records, state = self.folder / RECORDS_FILE, self.checkpoint
        has_rounds = records.exists() and records.stat().st_size > 0
        traces = [path.name for path in (state, self._attempts) if path.exists()]
        traces += [RECORDS_FILE] if has_rounds else []
        traces += [] if self.archive.is_empty else [ARCHIVE_FOLDER]
        traces += [CHECKPOINTS_FOLDER] if self._earlier.rounds() else []
        missing = next((path.name for path in (description, state) if not path.exists()), None)
        if traces and missing is not None:
            raise ValueError(
                f"{self.folder} holds {', '.join(traces)} of a run, but not its {missing}; restore "
                "it from a backup, or decide with `aquila checkpoints`: --rollback ROUND continues "
                "from an earlier checkpoint, and --start-over deletes the run"
            )

    def _read_or_create_name(self, path: Path, fingerprint: str) -> str:
        if not path.exists():
            name = secrets.token_hex(8)
            content = json.dumps({"run": name, "fingerprint": fingerprint}).encode()
            atomic_write(path, content, private=True)
            return name
        try:
            saved = read_json(path)
            name, saved_fingerprint = str(saved["run"]), str(saved["fingerprint"])
        except (KeyError, TypeError):
            name = saved_fingerprint = ""
        if not RUN_NAME_PATTERN.fullmatch(name):
            raise ValueError(f"{path} does not describe a run")
        if differences := fingerprint_differences(saved_fingerprint, fingerprint):
            raise ValueError(
                f"{self.folder} holds a different run and cannot be resumed: "
                f"{'; '.join(differences)}"
            )
        return name


def _parts_of(positions: Sequence[Position]) -> frozenset[Part]:
    return frozenset((device, position.part) for device, position in enumerate(positions))


def _are_counts(values: Any) -> bool:
    """Whether the content of a file is a list of whole numbers from 0 on."""
    return isinstance(values, list) and all(type(v) is int and v >= 0 for v in values)
