"""Earlier checkpoints of a run, so that an operator can roll it back."""

import os
import re
from pathlib import Path

from aquila.runtime.files import atomic_file, make_folder, sync_folder

CHECKPOINTS_FOLDER = "checkpoints"


class EarlierCheckpoints:
    """Keeps checkpoints of earlier rounds in a folder next to the current checkpoint.

    The files are hard links, so keeping one copies nothing. The current checkpoint is always
    replaced by a new file, and never changed.
    """

    def __init__(self, current: Path) -> None:
        self._current = current
        self._folder = current.parent / CHECKPOINTS_FOLDER
        self._name = re.compile(r"round-([0-9]+)" + re.escape(current.suffix))

    def path(self, round_number: int) -> Path:
        """Return the path of the checkpoint of a round."""
        return self._folder / f"round-{round_number}{self._current.suffix}"

    def rounds(self) -> list[int]:
        """Return the rounds whose checkpoints are kept, the oldest first."""
        if not self._folder.is_dir():
            return []
        names = (self._name.fullmatch(path.name) for path in self._folder.iterdir())
        return sorted(int(name[1]) for name in names if name is not None)

    def add_current(self, round_number: int) -> None:
        """Keep the current checkpoint, which is of this round."""
        make_folder(self._folder, private=True)
        _link(self._current, self.path(round_number))

    def prune(self, round_number: int, keep: int) -> None:
        """Delete checkpoints after a round, and all but the newest before it."""
        rounds = self.rounds()
        earlier = [kept for kept in rounds if kept < round_number]
        kept = {*earlier[max(0, len(earlier) - keep) :], *([round_number] if keep else [])}
        if unneeded := set(rounds) - kept:
            for number in unneeded:
                self.path(number).unlink(missing_ok=True)
            sync_folder(self._folder)  # before the caller deletes what they needed

    def restore(self, round_number: int) -> None:
        """Make the checkpoint of a round the current one."""
        _link(self.path(round_number), self._current)


def _link(source: Path, target: Path) -> None:
    """Give a file a second name atomically; copy it where the disk has no hard links."""
    temporary = target.with_name(target.name + ".tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:
        with atomic_file(target, private=True) as file:
            file.write(source.read_bytes())
        return
    try:
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)  # it stays if both names are of the same file
    sync_folder(target.parent)
