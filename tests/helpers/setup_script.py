"""Loads setup.py as a module, without running it."""

import importlib.util
from pathlib import Path
from types import ModuleType

SETUP = Path(__file__).parents[2] / "setup.py"


def load_setup() -> ModuleType:
    """Return the functions of setup.py."""
    spec = importlib.util.spec_from_file_location("aquila_setup", SETUP)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
