"""Only aquila.flower imports Flower, and its error names a missing Flower."""

import subprocess
import sys

from aquila.runtime.install_hint import install_hint

BLOCKED = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "flwr":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)


def test_aquila_does_not_import_flower():
    done = python("import sys, aquila; aquila.simulate; print('flwr' in sys.modules)")
    assert done.stdout.strip() == "False"


def test_missing_flower_gives_one_sentence():
    done = python(BLOCKED + "import aquila.flower")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: aquila.flower needs Flower, which is not installed: "
        + install_hint("flower")
    )
