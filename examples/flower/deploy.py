"""Run this app as a deployment on one machine: one SuperLink, and one SuperNode per device.

python examples/flower/deploy.py method=laq rounds=5
"""

import sys
import tempfile
from pathlib import Path

import torch
from digits_app import DEVICES, make_model

from aquila.core.packet import Dense, Packet
from aquila.core.wire import pack
from aquila.flower.local_processes import FederationError
from aquila.flower.loopback import federation
from aquila.sim.records import Record, read_records

HERE = Path(__file__).parent
SECONDS = 540


def main(settings: list[str]) -> None:
    config = dict(map(read_setting, settings))
    with tempfile.TemporaryDirectory() as folder:
        config.setdefault("folder", str(Path(folder) / "run"))
        print(f"starting a SuperLink and {DEVICES} SuperNodes on 127.0.0.1", flush=True)
        with federation(DEVICES, Path(folder) / "federation") as running:
            running.run(
                HERE, config, SECONDS, on_output=lambda text: print(text, end="", flush=True)
            )
        print("stopped the SuperLink and the SuperNodes")
        records = read_records(Path(str(config["folder"])))
    if not records:
        sys.exit("the run closed no round; the output above shows the error")
    print(summary(records))


def read_setting(setting: str) -> tuple[str, object]:
    name, equals, value = setting.partition("=")
    if not equals:
        sys.exit(f"{setting!r} is not a setting; write NAME=VALUE, for example rounds=5")
    for number in (int, float):
        try:
            return name, number(value)
        except ValueError:
            continue
    return name, value


def summary(records: list[Record]) -> str:
    """Return the bytes that the devices sent, and the bytes without compression."""
    sent = sum(record.uplink_bytes for record in records)
    uploads, skips = (sum(getattr(r, kind) for r in records) for kind in ("uploads", "skips"))
    coordinates = sum(weights.numel() for weights in make_model().parameters())
    dense = len(pack(Packet(0, Dense(torch.zeros(coordinates))))) * DEVICES * len(records)
    return (
        f"{len(records)} rounds, {DEVICES} devices, {coordinates:,} coordinates, accuracy "
        f"{records[-1].metrics['accuracy']:.2f}\n"
        f"  devices sent   {sent:>9,} bytes: {uploads} uploads, {skips} skips\n"
        f"  uncompressed   {dense:>9,} bytes: FedAvg sends float32 per device and round\n"
        f"  ratio          {dense / sent:>9.1f}; neither number includes Flower's overhead"
    )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (FederationError, KeyboardInterrupt) as error:
        sys.exit(str(error) or "interrupted; all started processes were stopped")
