"""Who a request of Flower's devices' API speaks for.

Flower 1.41 and 1.42 compare the node that a request names with the key that signed it. They do not
compare it with the source of the messages in the request. A registered node could therefore push a
reply of another node, or a message in the name of the server. The proxy closes both.

The requests are protocol buffers. This reader follows the few fields that matter. It refuses a
field that occurs twice, because readers disagree about which occurrence counts.
"""

from collections.abc import Iterator

PUSH_PATH = "/v1/fleet/push-messages"
SERVER_NODE = 1
"""The node id of the server in Flower's messages."""

_NODE, _MESSAGES = 1, 2  # of a request to push messages
_NODE_ID = 1  # of a node
_METADATA = 1  # of a message
_SOURCE, _DESTINATION, _REPLY_TO = 3, 4, 5  # of metadata
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10
_MAX_FIELD = 2**29 - 1
_NO_VALUE = 0


class ForgedRequestError(ValueError):
    """A request speaks for a node other than its own, or cannot be read."""


def check_push(body: bytes) -> None:
    """Raise ForgedRequestError unless a request pushes one reply of its own node to the server."""
    request = _fields(body)
    node = _number(_fields(_only(request, _NODE)), _NODE_ID)
    metadata = _fields(_only(_fields(_only(request, _MESSAGES)), _METADATA))
    source, destination = _number(metadata, _SOURCE), _number(metadata, _DESTINATION)
    if source != node:
        raise ForgedRequestError(f"node {node} sent a message in the name of node {source}")
    if destination != SERVER_NODE:
        raise ForgedRequestError(f"node {node} sent a message to node {destination}")
    if not _only(metadata, _REPLY_TO):
        raise ForgedRequestError(f"node {node} sent a message that is not a reply")


Field = tuple[int, int | bytes]


def _fields(data: bytes) -> list[Field]:
    """Return number and value of every field: an integer or bytes."""
    return list(_read_fields(memoryview(data)))


def _read_fields(data: memoryview) -> Iterator[Field]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        if not 1 <= number <= _MAX_FIELD:  # some readers drop its upper bits
            raise ForgedRequestError(f"the request has the invalid field number {number}")
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if kind == _BYTES:
            size, position = _varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ForgedRequestError(f"the request has a field of the unknown type {kind}")
        end = position + size
        if end > len(data):
            raise ForgedRequestError("the request ends within a field")
        yield number, bytes(data[position:end])
        position = end


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & (2**64 - 1), position + index + 1
    raise ForgedRequestError("the request has an invalid number")


def _values(fields: list[Field], number: int) -> list[int | bytes]:
    return [value for key, value in fields if key == number]


def _only(fields: list[Field], number: int) -> bytes:
    """Return the bytes of a field that occurs exactly once."""
    values = _values(fields, number)
    if len(values) != 1 or not isinstance(values[0], bytes):
        raise ForgedRequestError(f"the request must have field {number} exactly once")
    return values[0]


def _number(fields: list[Field], number: int) -> int:
    """Return an integer field that occurs at most once. Its default is 0."""
    values = _values(fields, number) or [_NO_VALUE]
    if len(values) != 1 or not isinstance(values[0], int):
        raise ForgedRequestError(f"the request must have the number {number} at most once")
    return values[0]
