"""One round over Flower's grid: orders out, replies in, whatever comes instead of them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from logging import getLogger

from flwr.app import Message
from flwr.serverapp import Grid

from aquila.core.fleet import DeviceId
from aquila.core.packet import WireError
from aquila.flower.patience import patience
from aquila.flower.roster import NodeId
from aquila.flower.transport import (
    PROBLEM,
    Overhead,
    content_of,
    frame_of,
    longest_frame,
    one_line,
    overhead_of,
    word,
    words_of,
)
from aquila.runtime.ledger import Ledger, cost_of
from aquila.runtime.session import Order, ServerSession
from aquila.sim.records import Happened

TURN = "train.aquila"
MOST_NOTES = 16
LOG = getLogger("flwr.aquila")


@dataclass
class Round:
    """What is known of a round: costs, what devices noted, and what went wrong on them."""

    number: int
    ledger: Ledger = field(default_factory=Ledger)
    notes: dict[DeviceId, dict[str, float]] = field(default_factory=dict)
    problems: dict[DeviceId, str] = field(default_factory=dict)
    uplink: Overhead = field(default_factory=Overhead)
    downlink: Overhead = field(default_factory=Overhead)


def play(
    grid: Grid,
    session: ServerSession,
    seats: Mapping[DeviceId, NodeId],
    words: Mapping[str, str | int],
    seconds: float,
) -> tuple[Round, Happened]:
    """Play the open round with the devices that are there, for at most so many seconds."""
    round = Round(session.round)
    orders = session.open_round()
    messages = {
        device: _message(round, device, order, seats[device], words, seconds)
        for device, order in orders.items()
        if device in seats
    }
    for device, reply in _exchange(grid, messages, seconds):
        try:
            _take(round, session, device, reply)
        except WireError as error:
            LOG.warning("round %d: device %d: %s", round.number, device, one_line(error))
    if messages and len(round.problems) == len(messages):
        raise RuntimeError(
            f"every device failed in round {round.number}: {next(iter(round.problems.values()))}"
        )
    replies = session.close_round()
    levels = {d: r.vector.bits for d, r in replies.items() if r.vector is not None}
    refused = sum(reply.refused for reply in replies.values())
    skips, lost = len(replies) - len(levels) - refused, len(orders) - len(replies)
    return round, Happened(round.ledger, levels, skips, lost, refused)


def _message(
    round: Round,
    device: DeviceId,
    order: Order,
    node: NodeId,
    words: Mapping[str, str | int],
    seconds: float,
) -> Message:
    content = content_of(words, {"m": order.model, "w": order.words})
    message = Message(content, node, TURN, ttl=seconds, group_id=str(round.number))
    round.ledger.count_down(device, cost_of(order.model) + cost_of(order.words))
    round.downlink += overhead_of(message)
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
    for _ in patience(seconds):
        for reply in grid.pull_messages(list(waiting)):
            found = waiting.pop(reply.metadata.reply_to_message_id, None)
            if found is not None:
                yield found, reply
        if not waiting:
            return
    for device in waiting.values():
        LOG.warning("no reply of device %d within %g s", device, seconds)


def _take(round: Round, session: ServerSession, device: DeviceId, reply: Message) -> None:
    """Hand the frame of a reply to the server; raise WireError if there is none that is sound."""
    if reply.has_error():
        raise WireError(f"no reply: {reply.error.reason}")
    if PROBLEM in words_of(reply.content):
        round.problems[device] = one_line(word(reply.content, PROBLEM, str))
        raise WireError(round.problems[device])
    frame = frame_of(reply.content, "f", longest_frame(session.fleet.dimension_of(device)))
    session.receive(device, frame)
    round.ledger.count_up(device, cost_of(frame))
    round.uplink += overhead_of(reply)
    round.notes[device] = _notes(reply)


def _notes(reply: Message) -> dict[str, float]:
    """Return what a device noted beside its frame, as far as it makes sense."""
    notes = {
        name[2:]: value
        for name, value in words_of(reply.content).items()
        if name.startswith("n.") and isinstance(value, float) and math.isfinite(value)
    }
    sound = [name for name in notes if name.isidentifier() and len(name) <= 32]
    return {name: notes[name] for name in sound[:MOST_NOTES]}
