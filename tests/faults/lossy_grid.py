"""A grid on whose way back some replies vanish."""

from collections.abc import Iterable
from logging import getLogger

from flwr.app import Message
from flwr.serverapp import Grid

LOG = getLogger("flwr.faults")


class LossyGrid:
    """Flower's grid, but one in `every` replies to orders never arrives; 0: all do."""

    def __init__(self, grid: Grid, every: int) -> None:
        self._grid = grid
        self._every = every
        self._seen = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._grid, name)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [reply for reply in self._grid.pull_messages(message_ids) if not self._lost(reply)]

    def _lost(self, reply: Message) -> bool:
        if reply.metadata.message_type != "train.aquila" or reply.has_error() or not self._every:
            return False
        self._seen += 1
        if self._seen % self._every:
            return False
        LOG.info("a reply in round %s was dropped", reply.metadata.group_id)
        return True
