"""Every Python block of the documents runs, in order, as a reader would run it."""

import re
import textwrap
from pathlib import Path

import pytest

import aquila
from aquila.methods.catalog import Entry

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
DOCUMENTS = [
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
    if BLOCK.search(path.read_text())
]


def run_blocks(path: Path) -> dict[str, object]:
    namespace: dict[str, object] = {"__name__": path.stem}
    for match in BLOCK.finditer(path.read_text()):
        exec(compile(textwrap.dedent(match[2]), str(path), "exec"), namespace)
    return namespace


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_blocks_run(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_blocks(path)


def test_the_method_of_the_guide_trains():
    entry = run_blocks(ROOT / "CONTRIBUTING.md")["sign"]
    assert isinstance(entry, Entry)
    import torch

    device = [lambda theta: (float((theta - 1) @ (theta - 1)), 2 * (theta - 1))]
    run = aquila.simulate(entry(alpha=0.05), torch.zeros(6), device, rounds=60)
    assert run.records[-1].loss < 0.01 * run.records[0].loss


@pytest.mark.parametrize("path", [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")], ids=str)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
