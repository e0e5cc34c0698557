"""With known keys, a node needs the key of the device number that it claims."""

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import torch
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from local_grid import LocalGrid, Node

import aquila
import aquila.flower
from aquila.deploy.certificates import make_key_pair
from aquila.flower.keys import read_keys
from aquila.flower.registry import DeviceRegistry

METHOD = aquila.create("aquila")
APP = aquila.flower.client_app(METHOD, lambda device, context: None)


class KeyedGrid(LocalGrid):
    """A grid that reports the keys of its nodes."""

    def __init__(self, nodes, keys):
        super().__init__(nodes)
        self.keys = keys

    def get_nodes(self):
        return [NodeInfo(node_id=n, public_key=self.keys[n]) for n in self.get_node_ids()]


@pytest.fixture
def folder(tmp_path):
    for device in range(3):
        (tmp_path / f"device-{device}.pub").write_bytes(make_key_pair().public)
    return tmp_path


def test_keys_have_flowers_form(folder):
    keys = read_keys(folder, 3)
    for device in range(3):
        public = load_ssh_public_key((folder / f"device-{device}.pub").read_bytes())
        assert keys[device] == public_key_to_bytes(public)


def test_node_with_different_key_is_refused(folder, log):
    keys = read_keys(folder, 3)
    owner = {5: keys[0], 6: keys[2], 7: keys[1], 8: b""}
    grid = KeyedGrid(
        {n: Node(APP, {"partition-id": d}) for n, d in {5: 1, 6: 2, 7: 1, 8: 0}.items()}, owner
    )
    registry = DeviceRegistry(3, {"method": repr(METHOD)}, keys)
    for _ in range(2):
        assert registry.update(grid) == {2: 6, 1: 7}
    assert [record.getMessage() for record in log.records] == [
        "node 5 claims to be device 1, but has a different key",
        "node 8 claims to be device 0, but has a different key",
    ]


def test_without_keys_any_node_gets_a_free_number():
    grid = KeyedGrid({5: Node(APP, {"partition-id": 1})}, {5: b""})
    assert DeviceRegistry(3, {"method": repr(METHOD)}).update(grid) == {1: 5}


def strategy(folder):
    return aquila.flower.strategy(
        METHOD,
        torch.zeros(3),
        devices=3,
        rounds=1,
        deployment=aquila.flower.Deployment(keys_folder=folder),
    )


def test_strategy_reads_keys(folder):
    assert strategy(folder).keys == read_keys(folder, 3)


@pytest.mark.parametrize("content", [None, b"", b"ssh-rsa garbage", b"\xff\xfe"])
def test_missing_or_invalid_key_is_named(folder, content):
    path = folder / "device-2.pub"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(ValueError, match=r"device-2.pub does not exist or is not a public key"):
        strategy(folder)


def test_same_key_for_two_devices_is_refused(folder):
    (folder / "device-1.pub").write_bytes((folder / "device-2.pub").read_bytes())
    with pytest.raises(ValueError, match="has the same key for two devices"):
        strategy(folder)
