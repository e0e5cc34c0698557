"""Which node is which device.

Flower's nodes have random ids and come and go. Each is asked once for its device number; a seat
is held by one node for as long as that node is there. Where the keys of devices are known, a node
must have the key of the device that it says it is.
"""

from collections.abc import Mapping
from logging import getLogger

from flwr.app import Message
from flwr.serverapp import Grid

from aquila.core.fleet import DeviceId
from aquila.core.packet import WireError
from aquila.flower.patience import patience
from aquila.flower.transport import PROBLEM, Value, content_of, one_line, word, words_of

HELLO = "query.aquila"
HELLO_SECONDS = 300.0

NodeId = int
LOG = getLogger("flwr.aquila")


class Roster:
    """Finds the nodes of devices 0 to `devices` - 1; `hello` is what a node is told when asked.

    With `keys`, only the owner of a device's key can be that device.
    """

    def __init__(
        self,
        devices: int,
        hello: Mapping[str, Value],
        keys: Mapping[DeviceId, bytes] | None = None,
    ) -> None:
        self.devices = devices
        self.seats: dict[DeviceId, NodeId] = {}
        self._hello = hello
        self._keys = keys
        self._key_of: dict[NodeId, bytes] = {}
        self._asked: dict[str, NodeId] = {}
        self._claims: dict[NodeId, DeviceId | None] = {}
        self._said: set[tuple[NodeId, str]] = set()

    def wait(self, grid: Grid, least: int, seconds: float) -> None:
        """Wait until so many devices are there; raise TimeoutError if they do not come in time."""
        found = -1
        for _ in patience(seconds):
            if len(self.update(grid)) >= least:
                return
            if len(self.seats) != found:
                found = len(self.seats)
                LOG.info("waiting for devices: %d of %d are there", found, least)
        raise TimeoutError(self._too_few(least, seconds))

    def update(self, grid: Grid) -> dict[DeviceId, NodeId]:
        """Ask new nodes, hear those that were asked, and return who sits where."""
        self._key_of = {node.node_id: node.public_key for node in grid.get_nodes()}
        present = list(self._key_of)
        waiting = set(self._asked.values())
        for node in present:
            if node not in self._claims and node not in waiting:
                self._ask(grid, node)
        self._hear(grid)
        self.seats = {d: node for d, node in self.seats.items() if node in present}
        for node, device in self._claims.items():
            if device is not None and node in present:
                self._seat(node, device)
        return self.seats

    def _ask(self, grid: Grid, node: NodeId) -> None:
        message = Message(content_of(self._hello, {}), node, HELLO, ttl=HELLO_SECONDS)
        for number in grid.push_messages([message]):
            if number:
                self._asked[number] = node

    def _hear(self, grid: Grid) -> None:
        if not self._asked:
            return
        for reply in grid.pull_messages(list(self._asked)):
            node = self._asked.pop(reply.metadata.reply_to_message_id, None)
            if node is None:
                continue
            if reply.has_error():  # it is asked again
                self._say(node, f"did not answer: {one_line(reply.error.reason)}")
            else:
                self._claims[node] = self._claim(node, reply)

    def _claim(self, node: NodeId, reply: Message) -> DeviceId | None:
        """Return the device that a node says it is, if there is such a device."""
        try:
            if PROBLEM in words_of(reply.content):
                self._say(node, f"cannot take part: {one_line(word(reply.content, PROBLEM, str))}")
                return None
            device: int = word(reply.content, "device", int)
        except WireError as error:
            self._say(node, f"sent no sound answer: {error}")
            return None
        if not 0 <= device < self.devices:
            self._say(
                node, f"says it is device {device}, but devices are 0 to {self.devices - 1}; "
                "set partition-id in its --node-config"
            )  # fmt: skip
            return None
        if self._keys is not None and self._key_of.get(node) != self._keys[device]:
            self._say(node, f"says it is device {device}, but its key is not that device's")
            return None
        return device

    def _seat(self, node: NodeId, device: DeviceId) -> None:
        holder = self.seats.setdefault(device, node)
        if holder != node:
            self._say(
                node, f"says it is device {device}, which node {holder} is already; give every "
                "SuperNode a partition-id of its own"
            )  # fmt: skip

    def _say(self, node: NodeId, problem: str) -> None:
        if (node, problem) not in self._said:
            self._said.add((node, problem))
            LOG.warning("node %d %s", node, problem)

    def _too_few(self, least: int, seconds: float) -> str:
        missing = [str(d) for d in range(self.devices) if d not in self.seats]
        return (
            f"{len(self.seats)} of {least} devices came within {seconds:g} s; not there: "
            f"{one_line(', '.join(missing))} (a device is a SuperNode with that partition-id)"
        )
