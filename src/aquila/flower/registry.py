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
from aquila.flower.backoff import backoff
from aquila.flower.transport import PROBLEM, Value, config_of, config_value, content_of, one_line

HELLO_MESSAGE = "query.aquila"
HELLO_SECONDS = 300.0

NodeId = int
LOG = getLogger("flwr.aquila")


class DeviceRegistry:
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
        self.nodes_by_device: dict[DeviceId, NodeId] = {}
        self._hello = hello
        self._keys = keys
        self._node_keys: dict[NodeId, bytes] = {}
        self._pending_queries: dict[str, NodeId] = {}
        self._claims: dict[NodeId, DeviceId | None] = {}
        self._warned: set[tuple[NodeId, str]] = set()

    def wait(self, grid: Grid, minimum: int, seconds: float) -> None:
        """Wait until so many devices are there; raise TimeoutError if they do not come in time."""
        found = -1
        for _ in backoff(seconds):
            if len(self.update(grid)) >= minimum:
                return
            if len(self.nodes_by_device) != found:
                found = len(self.nodes_by_device)
                LOG.info("waiting for devices: %d of %d are there", found, minimum)
        raise TimeoutError(self._timeout_message(minimum, seconds))

    def update(self, grid: Grid) -> dict[DeviceId, NodeId]:
        """Ask new nodes, hear those that were asked, and return who sits where."""
        self._node_keys = {node.node_id: node.public_key for node in grid.get_nodes()}
        present = list(self._node_keys)
        waiting = set(self._pending_queries.values())
        for node in present:
            if node not in self._claims and node not in waiting:
                self._ask(grid, node)
        self._collect_replies(grid)
        self.nodes_by_device = {
            d: node for d, node in self.nodes_by_device.items() if node in present
        }
        for node, device in self._claims.items():
            if device is not None and node in present:
                self._assign(node, device)
        return self.nodes_by_device

    def _ask(self, grid: Grid, node: NodeId) -> None:
        message = Message(content_of(self._hello, {}), node, HELLO_MESSAGE, ttl=HELLO_SECONDS)
        for number in grid.push_messages([message]):
            if number:
                self._pending_queries[number] = node

    def _collect_replies(self, grid: Grid) -> None:
        if not self._pending_queries:
            return
        for reply in grid.pull_messages(list(self._pending_queries)):
            node = self._pending_queries.pop(reply.metadata.reply_to_message_id, None)
            if node is None:
                continue
            if reply.has_error():  # it is asked again
                self._warn_once(node, f"did not answer: {one_line(reply.error.reason)}")
            else:
                self._claims[node] = self._claim(node, reply)

    def _claim(self, node: NodeId, reply: Message) -> DeviceId | None:
        """Return the device that a node says it is, if there is such a device."""
        try:
            if PROBLEM in config_of(reply.content):
                self._warn_once(
                    node, f"cannot take part: {one_line(config_value(reply.content, PROBLEM, str))}"
                )
                return None
            device: int = config_value(reply.content, "device", int)
        except WireError as error:
            self._warn_once(node, f"sent no sound answer: {error}")
            return None
        if not 0 <= device < self.devices:
            self._warn_once(
                node, f"says it is device {device}, but devices are 0 to {self.devices - 1}; "
                "set partition-id in its --node-config"
            )  # fmt: skip
            return None
        if self._keys is not None and self._node_keys.get(node) != self._keys[device]:
            self._warn_once(node, f"says it is device {device}, but its key is not that device's")
            return None
        return device

    def _assign(self, node: NodeId, device: DeviceId) -> None:
        owner = self.nodes_by_device.setdefault(device, node)
        if owner != node:
            self._warn_once(
                node, f"says it is device {device}, which node {owner} is already; give every "
                "SuperNode a partition-id of its own"
            )  # fmt: skip

    def _warn_once(self, node: NodeId, problem: str) -> None:
        if (node, problem) not in self._warned:
            self._warned.add((node, problem))
            LOG.warning("node %d %s", node, problem)

    def _timeout_message(self, minimum: int, seconds: float) -> str:
        missing = [str(d) for d in range(self.devices) if d not in self.nodes_by_device]
        return (
            f"{len(self.nodes_by_device)} of {minimum} devices came within {seconds:g} s; "
            f"not there: {one_line(', '.join(missing))} "
            "(a device is a SuperNode with that partition-id)"
        )
