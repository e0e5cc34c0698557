"""Code blocks of the documents run in order, and numbers in one page match those in others."""

import re
import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import aquila
from aquila.cli import main
from aquila.cli.method_spec import parse_method_spec
from aquila.core.method import has_memory
from aquila.methods.parts.factory import MethodFactory
from helpers import contract, doc_commands
from helpers.documents import DOCUMENTS, ROOT, code_blocks, document_name, documents_with_blocks
from helpers.problems import ridge
from helpers.run_folders import draw_only

DEMO_ROW = re.compile(r"\|.* x(\*\*)? \|$")
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def run_code_blocks(path: Path) -> dict[str, object]:
    namespace: dict[str, object] = {"__name__": path.stem}
    for kind, code in code_blocks(path, "python", "sh"):
        if kind == "python":
            exec(compile(code, str(path), "exec"), namespace)
        else:
            for words in doc_commands.parse_commands(code):
                doc_commands.run_command(words)
    return namespace


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A short version of what `make demo` writes."""
    folder = tmp_path_factory.mktemp("made") / "demo"
    words = ["compare", "--out", str(folder), "-m", "aquila", "-m", "laq", *doc_commands.SHORT_RUN]
    assert CliRunner().invoke(main, words).exit_code == 0
    return folder


@pytest.fixture
def checkout(tmp_path, demo, monkeypatch):
    """A writable folder with the layout of the repository."""
    for folder in ("experiments", "results", "tests"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    shutil.copytree(demo, tmp_path / "runs" / "demo")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    draw_only(monkeypatch, "loss_against_bits")


@pytest.mark.parametrize("path", documents_with_blocks("python", "sh"), ids=document_name)
def test_code_blocks_run_and_print_the_stated_output(path, checkout, capsys):
    run_code_blocks(path)
    printed = capsys.readouterr().out
    stated = "".join(text for _, text in code_blocks(path, "output"))
    if stated:
        assert NUMBER.sub("#", printed) == NUMBER.sub("#", stated)
        ours, theirs = ([float(n) for n in NUMBER.findall(text)] for text in (printed, stated))
        assert ours == pytest.approx(theirs, rel=0.05)  # processors round differently


@pytest.mark.parametrize("uplink_loss", [0.0, 0.2])
def test_method_of_the_guide_keeps_the_promises_of_its_row(uplink_loss):
    path = ROOT / "docs" / "add-a-method.md"
    entry = run_code_blocks(path)["signs"]
    assert isinstance(entry, MethodFactory)
    [table_row] = [text.strip().removesuffix(",") for _, text in code_blocks(path, "text")]
    row = eval(table_row, {"Row": contract.Row, "memory_row": contract.memory_row})
    problem = ridge(devices=5, dimension=30)
    start, optimum = torch.zeros(30, dtype=torch.float64), problem.optimum()
    method = entry(**{"alpha": 0.5 / problem.smoothness(), **row.parameters})
    assert (row.name, row.memory) == (entry.name, has_memory(method.server))
    options = aquila.RunOptions(uplink_loss=uplink_loss)
    run = aquila.simulate(method, start, problem.devices, contract.ROUNDS, options=options)
    gap, first = (problem.loss(theta) - problem.loss(optimum) for theta in (run.theta, start))
    assert gap < (row.gap_with_losses if uplink_loss else row.gap) * first


@pytest.mark.parametrize("path", DOCUMENTS, ids=document_name)
def test_linked_files_exist(path):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_demo_table_names_methods():
    text = (ROOT / "docs" / "digits.md").read_text()
    rows = [line for line in text.splitlines() if DEMO_ROW.match(line)]
    shown = {re.findall(r"\w+", line)[0] for line in rows}
    unknown = sorted(shown - set(aquila.METHODS))
    assert len(shown) > 10
    assert not unknown, f"the demo table of docs/digits.md has rows for {unknown}"


def test_rules_of_thumb_name_methods_and_state_no_numbers():
    """Numbers would become outdated; the table below the rules is made from the results."""
    text = (ROOT / "docs" / "choosing.md").read_text()
    rules = text.partition("## Rules of thumb")[2].partition("\n## ")[0]
    code = re.findall(r"`([^`]*)`", rules)
    specs = [parse_method_spec(one) for one in code if "downlink" not in one]
    assert len(specs) > 8
    for spec in specs:
        aquila.create(spec.name, **spec.parameters)
    assert NUMBER.findall(re.sub(r"`[^`]*`|\]\([^)]*\)", "", rules)) == []
