"""Every block of the documents that can run runs, in order, as a reader would run it."""

import re
import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import aquila
from aquila.cli import main
from aquila.methods.parts.factory import MethodFactory
from helpers import doc_commands
from helpers.documents import DOCUMENTS, ROOT, code_blocks, document_name, documents_with_blocks
from helpers.problems import ridge

ROW = re.compile(r"\|.* x(\*\*)? \|$")
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
    """What `make demo` leaves, in short."""
    folder = tmp_path_factory.mktemp("made") / "demo"
    words = ["compare", "--out", str(folder), "-m", "aquila", "-m", "laq", *doc_commands.SHORT_RUN]
    assert CliRunner().invoke(main, words).exit_code == 0
    return folder


@pytest.fixture
def checkout(tmp_path, demo, monkeypatch):
    """A folder like the repository's, to be written to."""
    for folder in ("experiments", "results", "tests"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    shutil.copytree(demo, tmp_path / "runs" / "demo")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")


@pytest.mark.parametrize("path", documents_with_blocks("python", "sh"), ids=document_name)
def test_blocks_run_and_print_what_is_said(path, checkout, capsys):
    run_code_blocks(path)
    printed, said = (
        capsys.readouterr().out,
        "".join(text for _, text in code_blocks(path, "output")),
    )
    if said:
        assert NUMBER.sub("#", printed) == NUMBER.sub("#", said)
        ours, theirs = ([float(n) for n in NUMBER.findall(text)] for text in (printed, said))
        assert ours == pytest.approx(theirs, rel=0.05)  # processors round in different ways


@pytest.mark.parametrize("uplink_loss", [0.0, 0.2])
def test_the_method_of_the_guide_keeps_the_contract(uplink_loss):
    """As tests/methods/test_contract.py asks of methods that remember."""
    entry = run_code_blocks(ROOT / "docs" / "add-a-method.md")["signs"]
    assert isinstance(entry, MethodFactory)
    problem, link = ridge(devices=5, dimension=30), aquila.Link(uplink_loss=uplink_loss)
    start, optimum = torch.zeros(30, dtype=torch.float64), problem.optimum()
    method = entry(alpha=0.5 / problem.smoothness())
    run = aquila.simulate(method, start, problem.devices, rounds=100, link=link)
    gap, first = (problem.loss(theta) - problem.loss(optimum) for theta in (run.theta, start))
    assert gap < (1e-2 if uplink_loss else 1e-3) * first


@pytest.mark.parametrize("path", DOCUMENTS, ids=document_name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_readme_shows_rows_of_the_whole_demo():
    shown, whole = (
        {line.replace("*", "") for line in path.read_text().splitlines() if ROW.match(line)}
        for path in (ROOT / "README.md", ROOT / "docs" / "choosing.md")
    )
    assert 4 < len(shown) < len(whole)
    assert {re.findall(r"\w+", line)[0] for line in whole} == set(aquila.METHODS)
    assert shown <= whole


def test_numbers_that_help_to_choose_are_those_of_the_pages_they_come_from():
    text = (ROOT / "docs" / "choosing.md").read_text().replace(",", "")
    advice, _, demo = text.partition("## All methods on the digits")
    checked = 0
    for line in re.split(r"\n(?=[|-] )|\n\n", advice):
        links = re.findall(r"\]\(([\w-]+\.md)", line)
        pages = [(ROOT / "docs" / page).read_text() for page in links]
        said = NUMBER.findall(re.sub(r"`[^`]*`|\]\([^)]*\)", "", line))
        known = set(NUMBER.findall(" ".join([demo, *pages]).replace(",", "")))
        assert set(said) <= known, line
        checked += len(said)
    assert checked > 15
