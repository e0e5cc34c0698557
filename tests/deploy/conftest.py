"""Marker for the tests of aquila.deploy that start real processes."""

import warnings
from contextlib import suppress

import pytest

with warnings.catch_warnings(), suppress(ModuleNotFoundError):
    warnings.simplefilter("ignore")  # Flower imports deprecated modules
    import flwr.serverapp  # noqa: F401


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "deployment: starts a SuperLink and SuperNodes, about a minute"
    )
