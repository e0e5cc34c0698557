"""A grid that drops some replies."""

from collections.abc import Iterable
from logging import getLogger

from flwr.app import Message
from flwr.serverapp import Grid

LOG = getLogger("flwr.faults")


class LossyGrid:
    """Flower's grid without every `every`-th reply to an order. 0 drops none."""

    def __init__(self, grid: Grid, every: int) -> None:
        self._grid = grid
        self._every = every
        self._seen = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._grid, name)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [reply for reply in self._grid.pull_messages(message_ids) if not self._drops(reply)]

    def _drops(self, reply: Message) -> bool:
        if reply.metadata.message_type != "train.aquila" or reply.has_error() or not self._every:
            return False
        self._seen += 1
        if self._seen % self._every:
            return False
        LOG.info("dropped a reply in round %s", reply.metadata.group_id)
        return True
