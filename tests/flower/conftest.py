"""Fixtures for the tests of aquila.flower, which need Flower."""

import logging
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import pytest

with warnings.catch_warnings(), suppress(ModuleNotFoundError):
    warnings.simplefilter("ignore")  # Flower imports deprecated modules
    import flwr.serverapp  # noqa: F401
sys.path.insert(0, str(Path(__file__).parent))

OFFLINE_SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ray: starts Ray, about twenty seconds")
    config.addinivalue_line(
        "markers", "deployment: starts a SuperLink and SuperNodes, about a minute"
    )


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Call no other machine, and keep device states out of the user's folder."""
    for name, value in {**OFFLINE_SETTINGS, "XDG_STATE_HOME": str(tmp_path / "state")}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    """The logged lines; Flower's logger does not propagate them otherwise."""
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.INFO, "flwr")
    return caplog
