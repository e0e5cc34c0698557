"""The server's folder of a run: who it is, its records, its checkpoint and its archive."""

import json
import secrets
from itertools import zip_longest
from logging import getLogger
from pathlib import Path

from aquila.flower.device_files import RUN_NAME_PATTERN
from aquila.runtime.archive import FolderArchive
from aquila.runtime.files import atomic_write
from aquila.runtime.persist import SavedStateError, load_server, save_server
from aquila.runtime.server_session import ServerSession
from aquila.sim.records import Record, append_record, read_records, write_records

LOG = getLogger("flwr.aquila")


class ServerRunFolder:
    """Keeps a run such that another process can go on with it after any closed round.

    `fingerprint` is a text that tells this run from others. The name of the run is random: devices
    keep their states by it, and two runs with the same fingerprint must not share them.
    """

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self.folder = folder
        self.checkpoint = folder / "server.state"
        self.archive = FolderArchive(folder / "archive")
        self._attempts = folder / "attempts.json"
        self.name = self._read_or_create_name(folder / "run.json", fingerprint)

    def resume(self, session: ServerSession) -> list[Record]:
        """Bring a fresh session to the last closed round; return the records up to there."""
        try:
            load_server(self.checkpoint, session)
        except SavedStateError as error:
            raise ValueError(f"{self.checkpoint} cannot be resumed: {error}") from None
        records = read_records(self.folder)
        if len(records) < session.round:
            raise ValueError(
                f"{self.folder} has {len(records)} records, the checkpoint beside them is of round "
                f"{session.round}"
            )
        write_records(self.folder, records[: session.round])
        return records[: session.round]

    def begin_round(self, round_number: int) -> int:
        """Note that a round begins; return the how manieth time it does.

        A server that dies in a round sends its orders again when it is resumed.
        """
        try:
            last, times = map(int, json.loads(self._attempts.read_text()))
        except (OSError, ValueError, TypeError):
            last, times = round_number, 0
        times = times + 1 if last == round_number else 1
        if times > 1:
            LOG.warning("round %d was begun before: its messages are sent again", round_number)
        content = json.dumps([round_number, times]).encode()
        atomic_write(self._attempts, content, private=True)
        return times

    def save_round(self, record: Record, session: ServerSession) -> None:
        """Keep a round that has been closed."""
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
            name, theirs = str(saved["run"]), str(saved["fingerprint"])
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{path} does not describe a run") from None
        pairs = zip_longest(theirs.splitlines(), fingerprint.splitlines(), fillvalue="nothing")
        differences = [f"{mine} (there: {saved})" for saved, mine in pairs if saved != mine]
        if differences or not RUN_NAME_PATTERN.fullmatch(name):
            raise ValueError(
                f"{self.folder} holds another run and cannot be resumed: {'; '.join(differences)}"
            )
        return name
