"""The proxy refuses messages that a node sends in the name of another node or of the server."""

import asyncio

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import httpx
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata
from flwr.proto.node_pb2 import Node
from hypothesis import given, settings
from hypothesis import strategies as st

from aquila.deploy.fleet_request import PUSH_PATH, ForgedRequestError, check_push
from aquila.deploy.http_server import Request
from aquila.deploy.proxy import Proxy

OWN, OTHER, SERVER = 2**63 + 5, 7, 1


def push(source=OWN, destination=SERVER, reply_to="abc", node=OWN, messages=1) -> bytes:
    """Return the body of a request that pushes messages, as Flower serializes it."""
    metadata = Metadata(
        run_id=3, message_id="id", src_node_id=source, dst_node_id=destination,
        reply_to_message_id=reply_to, group_id="1", ttl=60.0, message_type="train.aquila",
    )  # fmt: skip
    message = Message(metadata=metadata)
    message.content.SetInParent()
    request = PushMessagesRequest(node=Node(node_id=node), messages_list=[message] * messages)
    request.clientapp_runtime_list.append(0.5)
    body: bytes = request.SerializeToString()
    return body


def test_reply_of_own_node_passes():
    check_push(push())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (push(source=OTHER), f"node {OWN} sent a message in the name of node {OTHER}"),
        (push(source=SERVER, destination=OTHER, reply_to=""), "in the name of node 1"),
        (push(destination=OTHER), f"node {OWN} sent a message to node {OTHER}"),
        (push(reply_to=""), "field 5 exactly once"),
        (push(messages=2), "field 2 exactly once"),
        (push(messages=0), "field 2 exactly once"),
        (push() + push(source=OTHER), "field 1 exactly once"),
        (push()[:-1], "ends within a field"),
        (push() + b"\x0b", "unknown type 3"),
        (push() + b"\xff" * 11, "invalid number"),
        (push() + b"\x8a\x80\x80\x80\x10\x00", "invalid field number 536870913"),
        (push() + b"\x02\x00", "invalid field number 0"),
        (b"", "field 1 exactly once"),
    ],
    ids=str,
)
def test_forged_request_is_refused(body, message):
    with pytest.raises(ForgedRequestError, match=message):
        check_push(body)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_what_passes_is_read_by_flower_in_the_same_way(data):
    body = bytearray(push())
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        check_push(bytes(body))
    except ForgedRequestError:
        return
    try:
        request = PushMessagesRequest.FromString(bytes(body))
    except Exception:
        return
    (message,) = request.messages_list
    assert message.metadata.src_node_id == request.node.node_id
    assert message.metadata.dst_node_id == SERVER
    assert message.metadata.reply_to_message_id


def test_proxy_does_not_forward_forged_requests():
    async def forward(body: bytes) -> tuple[int, list[httpx.Request]]:
        seen: list[httpx.Request] = []
        transport = httpx.MockTransport(lambda r: seen.append(r) or httpx.Response(200))
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
            answer = await Proxy(client).answer(Request("POST", PUSH_PATH, [], "b"), body)
        return answer.status, seen

    assert asyncio.run(forward(push(source=OTHER))) == (400, [])
    assert asyncio.run(forward(push()))[0] == 200
