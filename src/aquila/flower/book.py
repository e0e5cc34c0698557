"""The server's folder of a run: who it is, its records, its checkpoint and its archive."""

import json
import secrets
from itertools import zip_longest
from logging import getLogger
from pathlib import Path

from aquila.flower.disk import RUN_NAME
from aquila.runtime.archive import FolderArchive
from aquila.runtime.persist import SavedStateError, load_server, save_server, write_whole
from aquila.runtime.session import ServerSession
from aquila.sim.records import Record, append_record, read_records, write_records

LOG = getLogger("flwr.aquila")


class RunBook:
    """Keeps a run such that another process can go on with it after any closed round.

    `setting` is a text that tells this run from others. The name of the run is random: devices keep
    their states by it, and two runs with the same setting must not share them.
    """

    def __init__(self, folder: Path, setting: str) -> None:
        self.folder = folder
        self.checkpoint = folder / "server.state"
        self.archive = FolderArchive(folder / "archive")
        self._attempts = folder / "attempts.json"
        self.name = self._name(folder / "run.json", setting)

    def begin(self, session: ServerSession) -> list[Record]:
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

    def attempt(self, round: int) -> int:
        """Note that a round begins; return the how manieth time it does.

        A server that dies in a round sends its orders again when it is resumed.
        """
        try:
            last, times = map(int, json.loads(self._attempts.read_text()))
        except (OSError, ValueError, TypeError):
            last, times = round, 0
        times = times + 1 if last == round else 1
        if times > 1:
            LOG.warning("round %d was begun before: its messages are sent again", round)
        write_whole(self._attempts, json.dumps([round, times]).encode())
        return times

    def keep(self, record: Record, session: ServerSession) -> None:
        """Keep a round that has been closed."""
        append_record(self.folder, record, to_disk=True)
        save_server(self.checkpoint, session)

    def _name(self, path: Path, setting: str) -> str:
        if not path.exists():
            name = secrets.token_hex(8)
            write_whole(path, json.dumps({"run": name, "setting": setting}).encode())
            return name
        try:
            saved = json.loads(path.read_text())
            name, theirs = str(saved["run"]), str(saved["setting"])
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{path} does not describe a run") from None
        pairs = zip_longest(theirs.splitlines(), setting.splitlines(), fillvalue="nothing")
        differences = [f"{mine} (there: {saved})" for saved, mine in pairs if saved != mine]
        if differences or not RUN_NAME.fullmatch(name):
            raise ValueError(
                f"{self.folder} holds another run and cannot be resumed: {'; '.join(differences)}"
            )
        return name
