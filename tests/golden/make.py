"""Make the golden frames that frames.json describes: `python tests/golden/make.py`.

A frame that is already there is never written again: frames of a released version must be readable
for ever, so a changed format gets new frames beside the old ones.
"""

import json
from pathlib import Path

import torch

from aquila.core.packet import Codes, Dense, Packet, code_dtype
from aquila.core.wire import pack

HERE = Path(__file__).parent


def descriptions() -> dict[str, dict]:
    return json.loads((HERE / "frames.json").read_text())


def packet_of(description: dict) -> Packet:
    """Return the packet that a description in frames.json stands for."""
    d = description
    return Packet(d["round"], _vector(d["vector"]), d["scalars"], d["ack"], d["refused"])


def _vector(d: dict | None) -> Dense | Codes | None:
    if d is None:
        return None
    dtype = getattr(torch, d["float"])
    if "values" in d:
        return Dense(torch.tensor(d["values"], dtype=dtype))
    return Codes(
        torch.tensor(d["codes"], dtype=code_dtype(d["bits"])),
        d["bits"],
        torch.tensor(d["low"], dtype=dtype),
        torch.tensor(d["step"], dtype=dtype),
        d["bucket"],
    )


def main() -> None:
    for name, description in descriptions().items():
        path = HERE / f"{name}.frame"
        if path.exists():
            print(f"{path.name} is there already and stays as it is")
        else:
            path.write_bytes(pack(packet_of(description)))
            print(f"{path.name} is new")


if __name__ == "__main__":
    main()
