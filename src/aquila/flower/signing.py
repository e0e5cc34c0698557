"""Signatures of messages, end to end: the server signs orders, and each device its replies.

Flower 1.41 and 1.42 sign the time of a request, not its content. A signature of AQUILA covers the
content of a message (frames, config values, notes) and its context: direction, run, round, device,
node, and for a reply the order that it answers. Nobody else can therefore send a message in the
name of the server or of a device, or move one to another place.
"""

import hashlib
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from flwr.app import ArrayRecord, Message, RecordDict

from aquila.core.fleet import DeviceId
from aquila.core.packet import WireError
from aquila.flower.transport import (
    ERROR_KEY,
    FRAMES_RECORD,
    SIGNATURE_KEY,
    config_of,
    config_value,
    one_line,
)
from aquila.runtime.traffic import Cost

IDENTITY_VARIABLE = "AQUILA_IDENTITY"
"""Environment variable with the folder of the signing keys; `start.sh` of a federation sets it."""

SIGNING_KEY = "signing.key"
SERVER_PUBLIC_KEY = "server-signing.pub"
DEVICE_KEYS_FOLDER = "signing"
"""Names of the files in that folder: the own key, the server's, and the folder of devices' keys."""

SIGNATURE_BYTES = 64
SIGNATURE_COST = Cost(header_bytes=SIGNATURE_BYTES)
"""A signature counts as header of the frames that it covers, in either direction."""

HELLO, INTRODUCTION, ORDER, REPLY = "hello", "introduction", "order", "reply"
_DOMAIN = b"AQUILA message 1\0"
_CACHED_FRAMES, _MIN_CACHED_BYTES = 4, 2**16


@dataclass(frozen=True)
class MessageContext:
    """Where a message belongs. `answers` is the digest of the order that a reply answers."""

    direction: str
    run: str
    round: str
    device: DeviceId | None
    node: int
    answers: bytes = b""


@dataclass
class Digester:
    """Computes digests of messages. It hashes a frame that many messages share only once."""

    _frames: list[tuple[bytes, bytes]] = field(default_factory=list)

    def digest(self, context: MessageContext, content: RecordDict) -> bytes:
        """Return the digest of a message. WireError if it has values of unknown types."""
        hasher = hashlib.sha512(_DOMAIN)
        for value in (
            context.direction, context.run, context.round, context.node, context.answers,
            -1 if context.device is None else context.device,
        ):  # fmt: skip
            hasher.update(self._encode(value))
        for name, value in sorted(_values(content).items()):
            hasher.update(self._encode(name) + self._encode(value))
        return hasher.digest()

    def _encode(self, value: object) -> bytes:
        """Return type, length and bytes of a value, so that no two values look the same."""
        if type(value) is bytes:
            kind, data = b"b", self._frame_digest(value)
        elif type(value) is str:
            kind, data = b"s", value.encode()
        elif type(value) is int:
            kind, data = b"i", b"%d" % value
        elif type(value) is float:
            kind, data = b"f", struct.pack("<d", value)
        else:
            raise WireError(f"the message has a value of type {type(value).__name__}")
        return kind + struct.pack("<Q", len(data)) + data

    def _frame_digest(self, frame: bytes) -> bytes:
        if len(frame) < _MIN_CACHED_BYTES:
            return hashlib.sha512(frame).digest()
        for known, digest in self._frames:
            if known is frame:
                return digest
        digest = hashlib.sha512(frame).digest()
        self._frames = [*self._frames[1 - _CACHED_FRAMES :], (frame, digest)]
        return digest


@dataclass(frozen=True)
class DeviceIdentity:
    """The keys that a device needs: its own, and the server's public key."""

    key: Ed25519PrivateKey
    server: Ed25519PublicKey
    digester: Digester = field(default_factory=Digester)

    def open(self, context: MessageContext, content: RecordDict) -> bytes:
        """Return the digest of a message that the server signed. WireError if it did not."""
        digest = self.digester.digest(context, content)
        _verify(self.server, digest, content, "the server")
        return digest

    def sign(self, context: MessageContext, content: RecordDict) -> None:
        """Add this device's signature to a message."""
        _sign(self.key, self.digester.digest(context, content), content)


@dataclass(frozen=True)
class ServerIdentity:
    """The keys that the server needs: its own, and the public key of every device."""

    key: Ed25519PrivateKey
    devices: tuple[Ed25519PublicKey, ...]
    digester: Digester = field(default_factory=Digester)

    def sign(self, context: MessageContext, content: RecordDict) -> bytes:
        """Add the server's signature to a message, and return the digest that it covers."""
        digest = self.digester.digest(context, content)
        _sign(self.key, digest, content)
        return digest

    def open(self, context: MessageContext, content: RecordDict) -> None:
        """Raise WireError unless the device of the context signed a message."""
        if context.device is None or not 0 <= context.device < len(self.devices):
            raise WireError(f"there is no key of device {context.device}")
        digest = self.digester.digest(context, content)
        _verify(self.devices[context.device], digest, content, f"device {context.device}")


@dataclass(frozen=True)
class Seal:
    """Signs the answer to one message, or does nothing if messages are not signed."""

    identity: DeviceIdentity | None = None
    context: MessageContext | None = None

    def sign(self, content: RecordDict) -> None:
        """Sign the answer."""
        if self.identity is not None and self.context is not None:
            self.identity.sign(self.context, content)


def open_message(
    identity: DeviceIdentity,
    message: Message,
    node: int,
    device: DeviceId,
    directions: tuple[str, str],
) -> Seal:
    """Return the seal for the answer to a message that the server signed, or raise WireError.

    The server does not know yet which device a node is when it says hello.
    """
    inward, outward = directions
    run = config_value(message.content, "run", str)
    context = MessageContext(
        inward, run, message.metadata.group_id, None if inward == HELLO else device, node
    )
    digest = identity.open(context, message.content)
    return Seal(identity, replace(context, direction=outward, device=device, answers=digest))


def read_device_identity(folder: Path) -> DeviceIdentity:
    """Return the keys in a device's folder. ValueError if one is missing."""
    return DeviceIdentity(_private(folder / SIGNING_KEY), _public(folder / SERVER_PUBLIC_KEY))


def read_server_identity(folder: Path, devices: int) -> ServerIdentity:
    """Return the keys in the server's folder. ValueError if one is missing or used twice."""
    paths = [folder / DEVICE_KEYS_FOLDER / f"device-{device}.pub" for device in range(devices)]
    keys = [_public(path) for path in paths]
    if len({key.public_bytes_raw() for key in keys}) < devices:
        raise ValueError(f"{folder / DEVICE_KEYS_FOLDER} has the same key for two devices")
    return ServerIdentity(_private(folder / SIGNING_KEY), tuple(keys))


def _private(path: Path) -> Ed25519PrivateKey:
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{path} does not exist or is not a signing key (Ed25519)")
    return key


def _public(path: Path) -> Ed25519PublicKey:
    try:
        key = load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError(f"{path} does not exist or is not a public signing key (Ed25519)")
    return key


def _values(content: RecordDict) -> dict[str, Any]:
    """Return all values of a message by name, frames included, without the signature."""
    values: dict[str, Any] = dict(config_of(content))
    values.pop(SIGNATURE_KEY, None)
    arrays = content.get(FRAMES_RECORD)
    if isinstance(arrays, ArrayRecord):
        for name, array in arrays.items():
            if name in values:
                raise WireError(f"the message has {name!r} twice")
            values[name] = array.data
    return values


def _sign(key: Ed25519PrivateKey, digest: bytes, content: RecordDict) -> None:
    config_of(content)[SIGNATURE_KEY] = key.sign(_DOMAIN + digest)


def _verify(key: Ed25519PublicKey, digest: bytes, content: RecordDict, signer: str) -> None:
    config = config_of(content)
    signature = config.get(SIGNATURE_KEY)
    if not isinstance(signature, bytes):
        reported = f"; it reports: {one_line(config[ERROR_KEY])}" if ERROR_KEY in config else ""
        raise WireError(f"the message is not signed by {signer}{reported}")
    try:
        key.verify(signature, _DOMAIN + digest)
    except InvalidSignature:
        raise WireError(
            f"the signature is not that of {signer}, or belongs to another message"
        ) from None
