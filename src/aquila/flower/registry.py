"""Which node runs which device.

Flower's nodes have random ids, connect late and disconnect. The registry asks each node once for
its device number, and for its number of samples if these are the weights of the run. One node keeps
a device number for as long as it is connected. If the devices' keys are known, a node must have the
key of the device number that it claims.
"""

from collections.abc import Mapping
from dataclasses import replace
from logging import getLogger

from flwr.app import Message
from flwr.serverapp import Grid

from aquila.core.fleet import DeviceId
from aquila.core.packet import WireError
from aquila.flower.signing import HELLO, INTRODUCTION, MessageContext, ServerIdentity
from aquila.flower.transport import (
    ERROR_KEY,
    SAMPLES_KEY,
    Value,
    config_of,
    config_value,
    content_of,
    one_line,
)
from aquila.runtime.backoff import backoff

HELLO_MESSAGE = "query.aquila"
HELLO_SECONDS = 300.0
"""How long a query waits for a node. Afterwards the node is queried again."""

NodeId = int
LOG = getLogger("flwr.aquila")


class DeviceRegistry:
    """Finds the nodes of devices 0 to `devices` - 1.

    `hello` holds the config values of the query that each node answers. With `keys`, a node is
    accepted only if it has the key of its device. With `identity`, queries and answers are signed.
    """

    def __init__(
        self,
        devices: int,
        hello: Mapping[str, Value],
        keys: Mapping[DeviceId, bytes] | None = None,
        identity: ServerIdentity | None = None,
    ) -> None:
        self.devices = devices
        self.nodes_by_device: dict[DeviceId, NodeId] = {}
        self.samples: dict[DeviceId, int] = {}
        self._hello = hello
        self._keys = keys
        self._identity = identity
        self._node_keys: dict[NodeId, bytes] = {}
        self._pending_queries: dict[str, NodeId] = {}
        self._claims: dict[NodeId, DeviceId | None] = {}
        self._warned: set[tuple[NodeId, str]] = set()

    def wait(self, grid: Grid, minimum: int, seconds: float) -> None:
        """Wait until `minimum` devices are connected. TimeoutError after `seconds`."""
        connected = -1
        for _ in backoff(seconds):
            if len(self.update(grid)) >= minimum:
                return
            if len(self.nodes_by_device) != connected:
                connected = len(self.nodes_by_device)
                LOG.info("waiting for devices: %d of %d connected", connected, minimum)
        raise TimeoutError(self._timeout_message(minimum, seconds))

    def update(self, grid: Grid) -> dict[DeviceId, NodeId]:
        """Query new nodes, collect answers, and return the node of each connected device."""
        self._node_keys = {node.node_id: node.public_key for node in grid.get_nodes()}
        connected = list(self._node_keys)
        queried = set(self._pending_queries.values())
        for node in connected:
            if node not in self._claims and node not in queried:
                self._query(grid, node)
        self._collect_replies(grid)
        self.nodes_by_device = {
            d: node for d, node in self.nodes_by_device.items() if node in connected
        }
        for node, device in self._claims.items():
            if device is not None and node in connected:
                self._assign(node, device)
        return self.nodes_by_device

    def _query(self, grid: Grid, node: NodeId) -> None:
        content = content_of(self._hello, {})
        if self._identity is not None:
            self._identity.sign(self._context(node), content)
        message = Message(content, node, HELLO_MESSAGE, ttl=HELLO_SECONDS)
        for message_id in grid.push_messages([message]):
            if message_id:
                self._pending_queries[message_id] = node

    def _collect_replies(self, grid: Grid) -> None:
        if not self._pending_queries:
            return
        for reply in grid.pull_messages(list(self._pending_queries)):
            node = self._pending_queries.pop(reply.metadata.reply_to_message_id, None)
            if node is None:
                continue
            if reply.has_error():  # the next update queries it again
                self._warn_once(node, f"did not answer: {one_line(reply.error.reason)}")
            else:
                self._claims[node] = self._claim(node, reply)

    def _claim(self, node: NodeId, reply: Message) -> DeviceId | None:
        """Return the device number that a node claims, or None if it is not accepted."""
        try:
            if ERROR_KEY in config_of(reply.content):
                error_text = one_line(config_value(reply.content, ERROR_KEY, str))
                self._warn_once(node, f"cannot take part: {error_text}")
                return None
            device: int = config_value(reply.content, "device", int)
            weighted = SAMPLES_KEY in self._hello
            samples = config_value(reply.content, "samples", int) if weighted else 1
            self._check_signature(node, device, reply)
        except WireError as error:
            self._warn_once(node, f"sent an invalid answer: {error}")
            return None
        if not 0 <= device < self.devices:
            self._warn_once(
                node, f"claims to be device {device}, but valid numbers are 0 to "
                f"{self.devices - 1}; set partition-id in its --node-config"
            )  # fmt: skip
            return None
        if self._keys is not None and self._node_keys.get(node) != self._keys[device]:
            self._warn_once(node, f"claims to be device {device}, but has a different key")
            return None
        self.samples.setdefault(device, samples)
        return device

    def _context(self, node: NodeId) -> MessageContext:
        return MessageContext(HELLO, str(self._hello["run"]), "", None, node)

    def _check_signature(self, node: NodeId, device: DeviceId, reply: Message) -> None:
        if self._identity is None:
            return
        context = self._context(node)
        answers = self._identity.digester.digest(context, content_of(self._hello, {}))
        context = replace(context, direction=INTRODUCTION, device=device, answers=answers)
        self._identity.open(context, reply.content)

    def _assign(self, node: NodeId, device: DeviceId) -> None:
        owner = self.nodes_by_device.setdefault(device, node)
        if owner != node:
            self._warn_once(
                node, f"claims to be device {device}, but node {owner} already is; give every "
                "SuperNode a different partition-id"
            )  # fmt: skip

    def _warn_once(self, node: NodeId, text: str) -> None:
        if (node, text) not in self._warned:
            self._warned.add((node, text))
            LOG.warning("node %d %s", node, text)

    def _timeout_message(self, minimum: int, seconds: float) -> str:
        missing = [str(d) for d in range(self.devices) if d not in self.nodes_by_device]
        return (
            f"{len(self.nodes_by_device)} of {minimum} devices connected within {seconds:g} s; "
            f"missing: {one_line(', '.join(missing))} "
            "(each needs a SuperNode with that partition-id)"
        )
