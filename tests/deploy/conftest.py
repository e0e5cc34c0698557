"""Marker for the tests of aquila.deploy that start real processes."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "deployment: starts a SuperLink and SuperNodes, about a minute"
    )
