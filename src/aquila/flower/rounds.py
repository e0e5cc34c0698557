"""One round over Flower's grid: send the orders, collect the replies, tolerate failures."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from logging import getLogger

from flwr.app import Message
from flwr.serverapp import Grid

from aquila.core.fleet import DeviceId
from aquila.core.packet import WireError
from aquila.flower.registry import NodeId
from aquila.flower.signing import (
    ORDER,
    REPLY,
    SIGNATURE_COST,
    MessageContext,
    ServerIdentity,
)
from aquila.flower.transport import (
    CONTROL_KEY,
    ERROR_KEY,
    MODEL_KEY,
    NOTE_PREFIX,
    REPLY_KEY,
    Overhead,
    config_of,
    config_value,
    content_of,
    frame_of,
    max_frame_bytes,
    one_line,
    overhead_of,
)
from aquila.runtime.backoff import backoff
from aquila.runtime.fleet_health import MAX_SCALAR
from aquila.runtime.messages import Order
from aquila.runtime.server_session import ServerSession
from aquila.runtime.traffic import Traffic, cost_of
from aquila.sim.protection import Protection
from aquila.sim.records import RoundOutcome

TURN_MESSAGE = "train.aquila"
MAX_NOTES, MAX_NOTE_CHARS = 16, 32
"""Notes that a record takes per device, and the longest name of one."""
PULL_BYTES, MIN_PULL, MAX_PULL = 2**28, 8, 128
"""Replies that are pulled at once: as many dense ones as have these bytes, within these bounds."""
LOG = getLogger("flwr.aquila")


@dataclass
class RoundState:
    """What one round has collected so far: traffic, overhead and devices' notes."""

    number: int
    traffic: Traffic = field(default_factory=Traffic)
    notes: dict[DeviceId, dict[str, float]] = field(default_factory=dict)
    uplink: Overhead = field(default_factory=Overhead)
    downlink: Overhead = field(default_factory=Overhead)


def run_round(
    grid: Grid,
    session: ServerSession,
    nodes_by_device: Mapping[DeviceId, NodeId],
    config: Mapping[str, str | int],
    seconds: float,
    protect: Protection,
    identity: ServerIdentity | None = None,
) -> tuple[RoundState, RoundOutcome]:
    """Run one round with the connected devices.

    Args:
        grid: Flower's connection to the nodes.
        session: The server session, between two rounds.
        nodes_by_device: The node of each connected device.
        config: Config values that go with every order.
        seconds: How long to wait for replies.
        protect: Reads what the record says about bad devices and privacy.
        identity: Keys that sign orders and check replies. None: messages are not signed.
    """
    state = RoundState(session.round)
    exchange = Exchange(
        grid, state, nodes_by_device, config, seconds, identity, _pull_size(session.theta.nbytes)
    )
    exchange.run(session.open_query(), partial(_receive_loss, state, session))
    orders, sent = session.open_round(nodes_by_device), 0
    while orders:  # others replace devices that fail
        exchange.run(orders, partial(_receive, state, session))
        sent += len(orders)
        orders = session.open_replacements(nodes_by_device)
    if reason := session.fatal_reason(nodes_by_device):
        raise RuntimeError(f"every device failed in round {state.number}: {reason}")
    replies = session.close_round()
    protection = protect.outcome(session)
    lost = sent - len(replies) - len(session.guard.rejected)
    return state, RoundOutcome.of(state.traffic, replies, lost, protection=protection)


@dataclass(frozen=True)
class Exchange:
    """Sends orders to the connected devices of a round and receives their replies."""

    grid: Grid
    state: RoundState
    nodes_by_device: Mapping[DeviceId, NodeId]
    config: Mapping[str, str | int]
    seconds: float
    identity: ServerIdentity | None = None
    pull_size: int = MAX_PULL

    def run(
        self, orders: Mapping[DeviceId, Order], receive: Callable[[DeviceId, Message], None]
    ) -> int:
        """Send the orders and pass each reply to `receive`; return how many were sent."""
        messages, digests = {}, {}
        for device, order in orders.items():
            if device in self.nodes_by_device:
                messages[device], digests[device] = self._message(device, order)
        for device, reply in self._replies(messages):
            try:
                self._check_signature(device, digests[device], reply)
                receive(device, reply)
            except WireError as error:
                LOG.warning("round %d: device %d: %s", self.state.number, device, one_line(error))
        return len(messages)

    def _message(self, device: DeviceId, order: Order) -> tuple[Message, bytes]:
        """Return the message of an order, and the digest that is signed, if it is."""
        content = content_of(self.config, {MODEL_KEY: order.model, CONTROL_KEY: order.control})
        node, group = self.nodes_by_device[device], str(self.state.number)
        cost, digest = cost_of(order.model) + cost_of(order.control), b""
        if self.identity is not None:
            digest = self.identity.sign(self._context(device), content)
            cost += SIGNATURE_COST
        message = Message(content, node, TURN_MESSAGE, ttl=self.seconds, group_id=group)
        self.state.traffic.add_downlink(device, cost)
        self.state.downlink += overhead_of(message)
        return message, digest

    def _context(self, device: DeviceId) -> MessageContext:
        run, number = str(self.config["run"]), str(self.state.number)
        return MessageContext(ORDER, run, number, device, self.nodes_by_device[device])

    def _check_signature(self, device: DeviceId, answers: bytes, reply: Message) -> None:
        """Raise WireError unless the device signed this reply to the order with this digest."""
        if self.identity is None or reply.has_error():  # an error of Flower has no content
            return
        context = replace(self._context(device), direction=REPLY, answers=answers)
        self.identity.open(context, reply.content)
        self.state.traffic.add_uplink(device, SIGNATURE_COST)

    def _replies(self, messages: Mapping[DeviceId, Message]) -> Iterator[tuple[DeviceId, Message]]:
        """Send the messages, and yield the replies that arrive before the deadline."""
        waiting: dict[str, DeviceId] = {}
        # one call per message: a joint call does not say which message was not accepted
        for device, message in messages.items():
            for message_id in self.grid.push_messages([message]):
                if message_id:
                    waiting[message_id] = device
        for _ in backoff(self.seconds) if waiting else ():
            for reply in self._pull(list(waiting)):
                sender = waiting.pop(reply.metadata.reply_to_message_id, None)
                if sender is not None:
                    yield sender, reply
            if not waiting:
                return
        for device in waiting.values():
            LOG.warning("no reply from device %d within %g s", device, self.seconds)

    def _pull(self, message_ids: list[str]) -> Iterator[Message]:
        """Yield the replies that have arrived. At most `pull_size` of them are in memory."""
        for first in range(0, len(message_ids), self.pull_size):
            yield from self.grid.pull_messages(message_ids[first : first + self.pull_size])


def _receive(state: RoundState, session: ServerSession, device: DeviceId, reply: Message) -> None:
    """Pass the frame of a reply to the session. WireError if there is no valid frame."""
    frame = _frame(session, device, reply)
    session.receive(device, frame)
    _count(state, device, reply, frame)
    state.notes[device] = _notes(reply)


def _pull_size(model_bytes: int) -> int:
    return min(max(PULL_BYTES // model_bytes, MIN_PULL), MAX_PULL)


def _receive_loss(
    state: RoundState, session: ServerSession, device: DeviceId, reply: Message
) -> None:
    """Pass the answer to a query to the session. WireError if there is no valid frame."""
    frame = _frame(session, device, reply)
    session.receive_loss(device, frame)
    _count(state, device, reply, frame)


def _frame(session: ServerSession, device: DeviceId, reply: Message) -> bytes:
    """Return the frame of a reply, or raise WireError."""
    if reply.has_error():
        raise WireError(f"no reply: {reply.error.reason}")
    if ERROR_KEY in config_of(reply.content):
        reason = one_line(config_value(reply.content, ERROR_KEY, str))
        session.report_failure(device, reason)
        raise WireError(reason)
    return frame_of(reply.content, REPLY_KEY, max_frame_bytes(session.fleet.dimension_of(device)))


def _count(state: RoundState, device: DeviceId, reply: Message, frame: bytes) -> None:
    state.traffic.add_uplink(device, cost_of(frame))
    state.uplink += overhead_of(reply)


def _notes(reply: Message) -> dict[str, float]:
    """Return the valid notes that a device sent next to its frame."""
    notes = {
        name.removeprefix(NOTE_PREFIX): value
        for name, value in config_of(reply.content).items()
        if name.startswith(NOTE_PREFIX) and isinstance(value, float) and abs(value) <= MAX_SCALAR
    }
    valid = [name for name in notes if name.isidentifier() and len(name) <= MAX_NOTE_CHARS]
    return {name: notes[name] for name in valid[:MAX_NOTES]}
