"""One round over Flower's grid: orders out, replies in, whatever comes instead of them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from logging import getLogger

from flwr.app import Message
from flwr.serverapp import Grid

from aquila.core.fleet import DeviceId
from aquila.core.packet import WireError
from aquila.flower.backoff import backoff
from aquila.flower.registry import NodeId
from aquila.flower.transport import (
    PROBLEM,
    Overhead,
    config_of,
    config_value,
    content_of,
    frame_of,
    max_frame_bytes,
    one_line,
    overhead_of,
)
from aquila.runtime.messages import Order
from aquila.runtime.server_session import ServerSession
from aquila.runtime.traffic import Traffic, cost_of
from aquila.sim.records import RoundOutcome

TURN_MESSAGE = "train.aquila"
MAX_NOTES = 16
LOG = getLogger("flwr.aquila")


@dataclass
class RoundState:
    """What is known of a round: costs, what devices noted, and what went wrong on them."""

    number: int
    traffic: Traffic = field(default_factory=Traffic)
    notes: dict[DeviceId, dict[str, float]] = field(default_factory=dict)
    problems: dict[DeviceId, str] = field(default_factory=dict)
    uplink: Overhead = field(default_factory=Overhead)
    downlink: Overhead = field(default_factory=Overhead)


def run_round(
    grid: Grid,
    session: ServerSession,
    nodes_by_device: Mapping[DeviceId, NodeId],
    config: Mapping[str, str | int],
    seconds: float,
) -> tuple[RoundState, RoundOutcome]:
    """Run the open round with the devices that are there, for at most so many seconds."""
    state = RoundState(session.round)
    orders = session.open_round()
    messages = {
        device: _order_message(state, device, order, nodes_by_device[device], config, seconds)
        for device, order in orders.items()
        if device in nodes_by_device
    }
    for device, reply in _exchange(grid, messages, seconds):
        try:
            _receive(state, session, device, reply)
        except WireError as error:
            LOG.warning("round %d: device %d: %s", state.number, device, one_line(error))
    if messages and len(state.problems) == len(messages):
        raise RuntimeError(
            f"every device failed in round {state.number}: {next(iter(state.problems.values()))}"
        )
    replies = session.close_round()
    levels = {d: r.vector.bits for d, r in replies.items() if r.vector is not None}
    refused = sum(reply.refused for reply in replies.values())
    skips, lost = len(replies) - len(levels) - refused, len(orders) - len(replies)
    return state, RoundOutcome(state.traffic, levels, skips, lost, refused)


def _order_message(
    state: RoundState,
    device: DeviceId,
    order: Order,
    node: NodeId,
    config: Mapping[str, str | int],
    seconds: float,
) -> Message:
    content = content_of(config, {"m": order.model, "c": order.control})
    message = Message(content, node, TURN_MESSAGE, ttl=seconds, group_id=str(state.number))
    state.traffic.add_downlink(device, cost_of(order.model) + cost_of(order.control))
    state.downlink += overhead_of(message)
    return message


def _exchange(
    grid: Grid, messages: Mapping[DeviceId, Message], seconds: float
) -> Iterator[tuple[DeviceId, Message]]:
    """Send messages and yield replies as they come; nobody asks for those that come too late."""
    waiting: dict[str, DeviceId] = {}
    for device, message in messages.items():  # one by one: it tells whose number is missing
        for number in grid.push_messages([message]):
            if number:
                waiting[number] = device
    for _ in backoff(seconds):
        for reply in grid.pull_messages(list(waiting)):
            found = waiting.pop(reply.metadata.reply_to_message_id, None)
            if found is not None:
                yield found, reply
        if not waiting:
            return
    for device in waiting.values():
        LOG.warning("no reply of device %d within %g s", device, seconds)


def _receive(state: RoundState, session: ServerSession, device: DeviceId, reply: Message) -> None:
    """Hand the frame of a reply to the server; raise WireError if there is none that is sound."""
    if reply.has_error():
        raise WireError(f"no reply: {reply.error.reason}")
    if PROBLEM in config_of(reply.content):
        state.problems[device] = one_line(config_value(reply.content, PROBLEM, str))
        raise WireError(state.problems[device])
    frame = frame_of(reply.content, "f", max_frame_bytes(session.fleet.dimension_of(device)))
    session.receive(device, frame)
    state.traffic.add_uplink(device, cost_of(frame))
    state.uplink += overhead_of(reply)
    state.notes[device] = _notes(reply)


def _notes(reply: Message) -> dict[str, float]:
    """Return what a device noted beside its frame, as far as it makes sense."""
    notes = {
        name[2:]: value
        for name, value in config_of(reply.content).items()
        if name.startswith("n.") and isinstance(value, float) and math.isfinite(value)
    }
    sound = [name for name in notes if name.isidentifier() and len(name) <= 32]
    return {name: notes[name] for name in sound[:MAX_NOTES]}
