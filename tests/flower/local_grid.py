"""A grid whose nodes run in this process: Flower's own messages, no network, no Ray."""

from collections.abc import Callable, Iterable
from uuid import uuid4

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

RUN_ID = 1


class Node:
    """A node that runs an app. `alter_reply` may change a reply, or drop it by returning None.

    `settings` is the run's configuration.
    """

    def __init__(
        self,
        app: ClientApp,
        config: dict[str, object],
        alter_reply: Callable[[Message], Message | None] = lambda reply: reply,
        settings: dict[str, object] | None = None,
    ) -> None:
        self.app = app
        self.config = config
        self.alter_reply = alter_reply
        self.settings = settings or {}
        self.connected = True

    def answer(self, node: int, message: Message) -> Message | None:
        context = Context(RUN_ID, node, dict(self.config), RecordDict(), self.settings)
        reply = self.app(message, context)
        return self.alter_reply(reply)


class LocalGrid(Grid):
    """Delivers a message when its reply is pulled. Nodes can be added and removed."""

    def __init__(self, nodes: dict[int, Node]) -> None:
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = RUN_ID
        self.nodes = nodes
        self.sent: list[Message] = []
        self.answered: list[Message] = []
        self._waiting: dict[str, Message] = {}

    def set_run(self, run: object) -> None:
        raise NotImplementedError

    @property
    def run(self) -> object:
        raise NotImplementedError

    def create_message(self, *arguments: object, **options: object) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *arguments: object, **options: object) -> list[Message]:
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        return [number for number, node in self.nodes.items() if node.connected]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        numbers = []
        for message in messages:
            if message.metadata.dst_node_id not in self.get_node_ids():
                continue
            number = str(uuid4())
            message.metadata.__dict__["_message_id"] = number
            self._waiting[number] = message
            self.sent.append(message)
            numbers.append(number)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        replies = []
        for number in list(message_ids):
            message = self._waiting.pop(number, None)
            if message is None:
                continue
            node = message.metadata.dst_node_id
            reply = self.nodes[node].answer(node, message) if node in self.nodes else None
            if reply is not None:
                replies.append(reply)
        self.answered += replies
        return replies


def local_grid(app: ClientApp, devices: int) -> LocalGrid:
    """Return a grid with one node per device and node ids that look random."""
    return LocalGrid({7919 * (m + 3): Node(app, {"partition-id": m}) for m in range(devices)})
