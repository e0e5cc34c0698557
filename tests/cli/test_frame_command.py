"""`aquila frame`: frames whose content is not a plain vector."""

import re
from pathlib import Path

import torch

from aquila.core.packet import Dense, Packet
from aquila.core.wire import pack
from helpers.command_line import error_line, output

GOLDEN = Path(__file__).parents[1] / "golden"


def test_frame_prints_a_dense_vector_without_coordinates(tmp_path):
    file = tmp_path / "empty.frame"
    file.write_bytes(pack(Packet(3, Dense(torch.zeros(0)))))
    assert re.search(r"coordinates +0 ", output("frame", str(file)))


def test_frame_prints_the_rounds_of_a_relayed_frame():
    text = output("frame", str(GOLDEN / "relayed.frame"))
    for name, value in {
        "kind": "relayed",
        "round": "37",
        "refers to": "6913403e",
        "coordinates of the model": "5",
        "type of the model": "float32",
        "relayed rounds": "2",
        "relayed replies": "2",
        "bytes of the replies": "49",
        "from model 6913403e": "2 replies, 49 bytes, factor -0.1",
        "from model fe262448": "0 replies, 0 bytes, factor 0",
        "header bytes": "12",
        "body bytes": "93",
    }.items():
        assert re.search(rf"^{name} +{value} *$", text, re.MULTILINE), name


def test_a_relayed_frame_with_a_damaged_reply_gives_one_sentence(tmp_path):
    frame = bytearray((GOLDEN / "relayed.frame").read_bytes())
    frame[50] ^= 1
    file = tmp_path / "damaged.frame"
    file.write_bytes(frame)
    assert "checksum does not match" in error_line("frame", str(file))
