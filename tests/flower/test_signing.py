"""With signing keys, only the server gives orders, and only a device replies for itself."""

import os

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import torch
from flwr.app import Message
from local_grid import LocalGrid, Node

import aquila
import aquila.flower
from aquila.core.packet import WireError
from aquila.deploy.certificates import make_signing_pair
from aquila.deploy.federation import create, rekey_device
from aquila.deploy.plan import Plan
from aquila.flower import rounds
from aquila.flower.signing import (
    IDENTITY_VARIABLE,
    ORDER,
    REPLY,
    SIGNATURE_BYTES,
    Digester,
    MessageContext,
    read_device_identity,
    read_server_identity,
)
from aquila.flower.transport import SIGNATURE_KEY, config_of, content_of

METHOD = aquila.create("aquila", alpha=0.1)
THETA = torch.zeros(5)
DEVICES = 2


def device_data(device, context):
    """Return a quadratic whose minimum differs between devices."""
    return lambda theta: (float(theta.sum()), theta - device - 1)


@pytest.fixture
def folder(tmp_path):
    create(tmp_path / "fed", Plan(DEVICES))
    return tmp_path / "fed"


def grid_of(folder, tmp_path, signed=True, **alter):
    """Return a grid whose nodes have the keys of their device."""
    nodes = {}
    for device in range(DEVICES):
        app = aquila.flower.client_app(
            METHOD,
            device_data,
            state_folder=tmp_path / "state",
            identity_folder=folder / f"device-{device}" if signed else None,
        )
        nodes[100 + device] = Node(app, {"partition-id": device}, **alter)
    return LocalGrid(nodes)


def run(grid, folder, rounds=2, wait=5.0):
    deployment = aquila.flower.Deployment(identity_folder=folder, wait_seconds=wait)
    return aquila.flower.strategy(METHOD, THETA, DEVICES, rounds, deployment=deployment).start(grid)


def test_signed_run_equals_unsigned_run_plus_signatures(folder, tmp_path):
    signed = run(grid_of(folder, tmp_path), folder / "server")
    plain = run(grid_of(folder, tmp_path, signed=False), None)
    assert torch.equal(signed.theta, plain.theta)
    for a, b in zip(signed.records, plain.records, strict=True):
        assert a.uplink_bytes - b.uplink_bytes == DEVICES * SIGNATURE_BYTES
        assert a.downlink_bytes - b.downlink_bytes == DEVICES * SIGNATURE_BYTES
        assert (a.uploads, a.skips, a.lost) == (b.uploads, b.skips, 0)


def test_order_without_the_servers_signature_is_not_executed(folder, tmp_path, log):
    grid = grid_of(folder, tmp_path)
    with pytest.raises(TimeoutError, match="0 of 2 devices connected"):
        run(grid, None, wait=0.5)
    assert "has no 'run'" in log.text
    assert not (tmp_path / "state").exists()


def test_order_for_another_device_is_not_executed(folder, tmp_path, log, monkeypatch):
    grid = grid_of(folder, tmp_path)

    def swapped(exchange, device):
        context = original(exchange, device)
        return MessageContext(ORDER, context.run, context.round, 1 - device, context.node)

    original = rounds.Exchange._context
    monkeypatch.setattr(rounds.Exchange, "_context", swapped)
    result = run(grid, folder / "server", rounds=1)
    assert result.records[0].lost == DEVICES
    assert "the signature is not that of the server, or belongs to another message" in log.text


def test_unsigned_device_takes_no_part(folder, tmp_path, log):
    with pytest.raises(TimeoutError, match="0 of 2 devices connected"):
        run(grid_of(folder, tmp_path, signed=False), folder / "server", wait=0.5)
    assert "the message is not signed by device 0" in log.text


def tampered(change):
    """Return a function that changes the replies to orders, but not introductions."""

    def alter(reply: Message) -> Message:
        if reply.metadata.message_type.startswith("train"):
            change(reply)
        return reply

    return alter


def drop_signature(reply):
    del config_of(reply.content)[SIGNATURE_KEY]


def change_frame(reply):
    config = config_of(reply.content)
    config["f"] = config["f"][:-1] + bytes([config["f"][-1] ^ 1])


def add_note(reply):
    config_of(reply.content)["n.loss"] = 1e300


@pytest.mark.parametrize("change", [drop_signature, change_frame, add_note])
def test_changed_reply_is_refused(folder, tmp_path, log, change):
    grid = grid_of(folder, tmp_path, alter_reply=tampered(change))
    result = run(grid, folder / "server", rounds=1)
    assert result.records[0].lost == DEVICES
    assert result.records[0].uplink_bytes == 0
    assert "device 0" in log.text


def test_replies_are_tied_to_run_round_device_and_order(folder):
    server = read_server_identity(folder / "server", DEVICES)
    device = read_device_identity(folder / "device-1")
    context = MessageContext(REPLY, "run", "3", 1, 100, b"order")
    content = content_of({"n.loss": 0.5, "k": 3}, {"f": b"frame", "g": bytes(2**19)})
    device.sign(context, content)
    server.open(context, content)
    for other in (
        MessageContext(REPLY, "other", "3", 1, 100, b"order"),
        MessageContext(REPLY, "run", "4", 1, 100, b"order"),
        MessageContext(REPLY, "run", "3", 0, 100, b"order"),
        MessageContext(REPLY, "run", "3", 1, 101, b"order"),
        MessageContext(REPLY, "run", "3", 1, 100, b"another"),
        MessageContext(ORDER, "run", "3", 1, 100, b"order"),
        MessageContext(REPLY, "run", "3", 7, 100, b"order"),
    ):
        with pytest.raises(WireError, match=r"signature is not that of device|no key of device 7"):
            server.open(other, content)


def test_values_and_names_cannot_be_confused():
    context, digests = MessageContext(REPLY, "r", "0", 0, 1), set()
    contents = [
        {"a": "1"}, {"a": 1}, {"a": 1.0}, {"a": b"1"}, {"a1": ""}, {"a": "", "b": ""}, {"ab": ""},
    ]  # fmt: skip
    for config in contents:
        digests.add(Digester().digest(context, content_of(config, {})))
    assert len(digests) == len(contents)
    with pytest.raises(WireError, match="value of type list"):
        Digester().digest(context, content_of({"a": [1]}, {}))


def test_frame_may_not_be_sent_twice():
    content = content_of({"f": b"small"}, {"g": bytes(2**19)})
    content["f"]["f"] = content["f"]["g"]
    with pytest.raises(WireError, match="has 'f' twice"):
        Digester().digest(MessageContext(REPLY, "r", "0", 0, 1), content)


def test_missing_and_repeated_keys_are_named(folder, tmp_path):
    with pytest.raises(ValueError, match=r"device-2.pub does not exist or is not a public signing"):
        read_server_identity(folder / "server", 3)
    with pytest.raises(ValueError, match=r"signing.key does not exist or is not a signing key"):
        read_device_identity(tmp_path)
    keys = folder / "server" / "signing"
    (keys / "device-1.pub").write_bytes((keys / "device-0.pub").read_bytes())
    with pytest.raises(ValueError, match="same key for two devices"):
        read_server_identity(folder / "server", DEVICES)
    (keys / "device-0.pub").write_bytes((folder / "server/keys/device-0.pub").read_bytes())
    with pytest.raises(ValueError, match="not a public signing key"):
        read_server_identity(folder / "server", DEVICES)


def test_new_device_and_new_key_can_sign(folder):
    old = (folder / "device-0" / "signing.key").read_bytes()
    rekey_device(folder, 0)
    rekey_device(folder, DEVICES)
    assert (folder / "device-0" / "signing.key").read_bytes() != old
    server = read_server_identity(folder / "server", DEVICES + 1)
    for device in range(DEVICES + 1):
        identity = read_device_identity(folder / f"device-{device}")
        assert identity.key.public_key() == server.devices[device]
        assert identity.server == server.key.public_key()


def test_federation_exports_its_keys_unless_it_is_unsigned(folder, tmp_path):
    create(tmp_path / "plain", Plan(1, signed=False))
    for name in ("server/start.sh", "device-0/start.sh"):
        assert f"export {IDENTITY_VARIABLE}=$PWD" in (folder / name).read_text()
        assert IDENTITY_VARIABLE not in (tmp_path / "plain" / name).read_text()
    assert not (tmp_path / "plain" / "server" / "signing").exists()


def test_environment_names_the_keys(folder, monkeypatch):
    monkeypatch.setenv(IDENTITY_VARIABLE, os.fspath(folder / "server"))
    assert aquila.flower.strategy(METHOD, THETA, DEVICES, 1).identity is not None
    pair = make_signing_pair()
    assert pair.public.startswith(b"ssh-ed25519 ")
