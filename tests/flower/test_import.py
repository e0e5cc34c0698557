"""Flower is loaded by aquila.flower alone, and named where it is missing."""

import subprocess
import sys

BLOCKED = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "flwr":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_aquila_does_not_load_flower():
    done = python("import sys, aquila; aquila.simulate; print('flwr' in sys.modules)")
    assert done.stdout.strip() == "False"


def test_a_missing_flower_is_one_sentence():
    done = python(BLOCKED + "import aquila.flower")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: aquila.flower needs Flower, which is not installed: "
        "pip install 'aquila-fl[flower]'"
    )
