"""Some tests of aquila.deploy start real processes."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "deployment: starts SuperLink and SuperNodes, a minute")
