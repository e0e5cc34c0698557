"""Readers of files raise documented errors only, and no small file expands to a large one."""

import gzip
import io
import json
import random
import struct
import tarfile
import zipfile
import zlib
from contextlib import suppress

import numpy as np
import pytest
import torch

import aquila
from aquila.deploy.plan import PLAN_FILE, load_plan
from aquila.report.runs import read_facts
from aquila.runtime.array_file import read_arrays
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.persist import (
    SavedStateError,
    device_to_bytes,
    read_server_model,
    restore_device,
    server_to_bytes,
)
from aquila.runtime.server_session import ServerSession
from aquila.runtime.state_file import MAGIC, VERSION
from aquila.sim import compressed
from aquila.sim.checkpoint import read_checkpoint_model
from aquila.sim.experiment import read_experiment
from aquila.sim.link_source import read_trace
from aquila.sim.model_files import read_model, write_model
from aquila.sim.oracle import as_shard
from aquila.sim.records import read_records
from aquila.sim.times import read_times
from aquila.tasks import data_store
from aquila.tasks.data_store import LocalCopy
from aquila.tasks.partition import load_partition
from aquila.tasks.sources import SOURCES
from helpers.problems import ridge

D = 20
METHOD = aquila.create("aquila", alpha=0.1)
MUTATIONS = 150
NESTED = b"[" * 100_000


def device() -> DeviceSession:
    shard = as_shard(ridge(devices=2, dimension=D).devices[0])
    return DeviceSession(METHOD, 0, shard, torch.zeros(D), seed=0)


def server() -> ServerSession:
    return ServerSession(METHOD, torch.zeros(D), aquila.Fleet.uniform(D, 2), seed=0)


def npz(**arrays) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def saved(content: bytes) -> bytes:
    """Return content as a saved session whose checksum is right."""
    return struct.pack("<4sII", MAGIC, VERSION, zlib.crc32(content)) + content


def mutated(content: bytes, seed: int) -> bytes:
    """Return content with some bytes changed, removed, or repeated."""
    draw, data = random.Random(seed), bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 8])):
        place = draw.randrange(len(data))
        kind = draw.randrange(4)
        if kind < 2:
            data[place] = draw.choice([draw.randrange(256), *b"({['\"\\,0", 255])
        elif kind == 2:
            del data[place : place + draw.choice([1, 4, 100])]
        else:
            data[place:place] = data[place : place + draw.choice([1, 8])]
        data = data or bytearray(b"x")
    return bytes(data)


def in_folder(name, read):
    """Return a reader of bytes that are first written to a file of this name."""

    def read_content(folder, content):
        (folder / name).write_bytes(content)
        return read(folder / name)

    return read_content


RUN = {"method": "aquila", "rounds": 1, "task": "digits"}
PLAN = b'{"devices": 2, "hosts": ["a.org"], "port": 8443, "insecure": false}'
TIME = b'{"round": 0, "seconds": 1.5, "ended": "2026-01-01T00:00:00+00:00"}\n'
TRACE = b"round,device,uplink_rate,downlink_rate\n0,0,1,1\n0,1,1,1\n"
NPZ = npz(**{"round": np.asarray(3), "theta.": np.arange(9, dtype=np.float32)})
READERS = {
    "device": (
        lambda folder, content: restore_device(device(), saved(content)),
        device_to_bytes(device())[12:],
    ),
    "server": (
        in_folder("server.state", lambda p: read_server_model(p)),
        server_to_bytes(server())[12:],
    ),
    "checkpoint": (in_folder("checkpoint.npz", read_checkpoint_model), NPZ),
    "records": (in_folder("records.jsonl", lambda p: read_records(p.parent)), b'{"round": 0}\n'),
    "records.gz": (
        in_folder("records.jsonl.gz", lambda p: read_records(p.parent)),
        gzip.compress(b'{"round": 0}\n'),
    ),
    "times": (in_folder("times.jsonl", lambda p: read_times(p.parent, 1)), TIME),
    "run": (in_folder("run.json", read_facts), json.dumps(RUN).encode()),
    "partition": (in_folder("p.json", load_partition), b'{"device_of_sample": [0, 1, 0, 1]}'),
    "plan": (in_folder(PLAN_FILE, lambda p: load_plan(p.parent)), PLAN),
    "trace": (in_folder("t.csv", lambda p: read_trace(p, 2)), TRACE),
    "experiment": (in_folder("e.toml", lambda p: read_experiment(p, {})), b"[setting]\nrounds=3\n"),
}


@pytest.mark.parametrize("name", READERS)
def test_only_documented_errors_escape(tmp_path, name):
    read, valid = READERS[name]
    contents = [mutated(valid, seed) for seed in range(MUTATIONS)]
    for content in (valid, b"", NESTED, b"[" + NESTED, b"a = " + NESTED, *contents):
        data = saved(content) if name == "server" else content
        try:
            read(tmp_path, data)
        except (ValueError, SavedStateError):
            pass
        except OSError as error:
            raise AssertionError(content) from error


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_model_files_raise_value_error_only(tmp_path, suffix):
    path = tmp_path / f"model{suffix}"
    write_model(path, {"w": torch.arange(30.0)}, {})
    valid = path.read_bytes()
    for seed in range(60):
        path.write_bytes(mutated(valid, seed))
        with suppress(ValueError):
            read_model(path)


def header(text: str) -> bytes:
    """Return an array file with this header."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def zipped(members: dict[str, bytes], method=zipfile.ZIP_STORED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return content.getvalue()


def with_method(content: bytes, number: int) -> bytes:
    """Return a zip file whose directory names another method of compression."""
    place = content.index(b"PK\x01\x02") + 10
    return content[:place] + struct.pack("<H", number) + content[place + 2 :]


HUGE = "{'descr': '<f4', 'fortran_order': False, 'shape': (500000000,), }"
HOSTILE = {
    "compressed": zipped({"a.npy": bytes(2**21)}, zipfile.ZIP_DEFLATED),
    "too large a shape": zipped({"a.npy": header(HUGE)}),
    "half a header": zipped({"a.npy": header("{'descr': (")}),
    "pickle": zipped({"a.npy": header(HUGE.replace("<f4", "|O"))}),
    "not an array": zipped({"round": b"3", "theta.": b"abc"}),
    "negative shape": zipped({"a.npy": header(HUGE.replace("500000000", "-1, -1"))}),
    "unknown version": zipped({"a.npy": b"\x93NUMPY\x07\x00" + bytes(100)}),
    "unknown method of compression": with_method(zipped({"a.npy": bytes(100)}), 97),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_states_are_refused(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(saved(content))
    with pytest.raises(SavedStateError, match="the saved session cannot be used"):
        read_server_model(path)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not a checkpoint"):
        read_checkpoint_model(path)


def test_compressed_model_file_is_refused(tmp_path):
    path = tmp_path / "model.pt"
    write_model(path, {"w": torch.zeros(1000)}, {})
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    path.write_bytes(zipped(members, zipfile.ZIP_DEFLATED))
    with pytest.raises(ValueError, match="is not a readable model file"):
        read_model(path)


def test_compressed_records_do_not_expand_without_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(compressed, "MIN_LIMIT", 2**16)
    (tmp_path / "records.jsonl.gz").write_bytes(gzip.compress(bytes(2**24)))
    with pytest.raises(ValueError, match="it would expand to more than"):
        read_records(tmp_path)


@pytest.mark.parametrize("kind", ["gz", "zip", "tar.gz"])
def test_data_sets_do_not_expand_without_bound(tmp_path, kind):
    source = SOURCES[
        "cifar10" if kind == "tar.gz" else "wikitext2" if kind == "zip" else "fashion_mnist"
    ]
    file = next(iter(source.files))
    member, bomb = f"{source.folders[0]}/{file}", bytes(2**23)
    path = tmp_path / f"data.{kind}"
    if kind == "gz":
        path = tmp_path
        (path / f"{file}.gz").write_bytes(gzip.compress(bomb))
    elif kind == "zip":
        path.write_bytes(zipped({member: bomb}, zipfile.ZIP_DEFLATED))
    else:
        with tarfile.open(path, "w:gz") as archive:
            info = tarfile.TarInfo(member)
            info.size = len(bomb)
            archive.addfile(info, io.BytesIO(bomb))
    with pytest.raises(ValueError, match=f"expand to more than {data_store.MAX_RATIO} times"):
        list(LocalCopy(source, path).files())


def test_arrays_are_read_unchanged():
    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.asarray("text"),
        "c": np.asfortranarray(np.arange(6).reshape(2, 3)), "d": np.zeros((0, 4)),
    }  # fmt: skip
    read = read_arrays(io.BytesIO(npz(**arrays)))
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype
        assert np.array_equal(read[name], array)
