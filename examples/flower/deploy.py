"""Run this app as a deployment on one machine: a SuperLink, and a SuperNode for every device.

python examples/flower/deploy.py method=laq rounds=5
"""

import sys
import tempfile
from pathlib import Path

from aquila.flower.loopback import federation

HERE = Path(__file__).parent
DEVICES, SECONDS = 3, 540


def main(settings: list[str]) -> None:
    config: dict[str, object] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        config[name] = int(value) if value.isdigit() else value
    with tempfile.TemporaryDirectory() as folder, federation(DEVICES, Path(folder)) as running:
        running.run(HERE, config, SECONDS, show=lambda text: print(text, end="", flush=True))


if __name__ == "__main__":
    main(sys.argv[1:])
