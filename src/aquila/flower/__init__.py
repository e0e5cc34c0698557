"""Run any AQUILA method on Flower, in a simulation or in a deployment.

app = aquila.flower.client_app(method, make_device)                       # on every device
aquila.flower.strategy(method, theta0, devices=3, rounds=20).start(grid)  # on the server
"""

from aquila.runtime.install_hint import install_hint

try:
    import flwr as _flwr  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name != "flwr":
        raise
    raise ModuleNotFoundError(
        f"aquila.flower needs Flower, which is not installed: {install_hint('flower')}",
        name="flwr",
    ) from None

from aquila.flower.client import client_app, device_number
from aquila.flower.server import Deployment, RunResult, Strategy, strategy

__all__ = ["Deployment", "RunResult", "Strategy", "client_app", "device_number", "strategy"]
