"""What a package index shows: equal versions, working links, a complete source package."""

import os
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from setuptools.command.egg_info import FileList

from aquila.version import __version__
from helpers.setup_script import load_setup
from release.distributions import tracked_files

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://example.org/a/b"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def describe(text: str, repository: str | None = REPOSITORY) -> str:
    return load_setup().description(text, repository, "1.2.3")


def link_targets(text: str) -> list[str]:
    return re.findall(r"\]\(([^)]*)\)", text)


@pytest.mark.parametrize(
    ("place", "pattern"),
    [
        ("CITATION.cff", r"^version: (\S+)$"),
        ("README.md", r"^  version = \{(\S+)\},$"),
        ("CHANGELOG.md", r"^## (\S+)"),
    ],
)
def test_all_files_name_the_same_version(place, pattern):
    found = re.search(pattern, (ROOT / place).read_text(), re.MULTILINE)
    assert found is not None
    assert found[1] == __version__


def test_version_is_semantic():
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](docs/a.md#part)", f"[a]({REPOSITORY}/blob/v1.2.3/docs/a.md#part)"),
        ("[two\nlines](A.md)", f"[two\nlines]({REPOSITORY}/blob/v1.2.3/A.md)"),
        ("![a b](docs/a.png)", f"![a b]({REPOSITORY}/raw/v1.2.3/docs/a.png)"),
        ("[a](https://a.org) [b](#part)", "[a](https://a.org) [b](#part)"),
    ],
)
def test_links_to_files_become_absolute(text, expected):
    assert describe(text) == expected


def test_without_a_repository_links_become_names_of_files():
    assert describe("[a](docs/a.md#part), ![b](b.png)", None) == "a (`docs/a.md`), b (`b.png`)"


def test_every_link_of_the_readme_works_outside_the_repository():
    readme = (ROOT / "README.md").read_text()
    assert any(target.startswith("docs/") for target in link_targets(readme))
    for text in (describe(readme), load_setup().read_description()):
        assert not [link for link in link_targets(text) if not link.startswith("https://")]


def test_links_lead_to_files_that_the_tag_has():
    prefix = re.compile(rf"{REPOSITORY}/(?:blob|raw)/v1\.2\.3/([^#\n]+)")
    targets = prefix.findall("\n".join(link_targets(describe((ROOT / "README.md").read_text()))))
    assert len(targets) > 10
    assert [target for target in targets if not (ROOT / target).is_file()] == []


def test_the_source_package_is_complete(monkeypatch):
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout of the repository")
    monkeypatch.chdir(ROOT)
    files = FileList()
    for line in (ROOT / "MANIFEST.in").read_text().splitlines():
        files.process_template_line(line)
    # setuptools adds these itself
    shipped = {"LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"}
    shipped |= {name.replace(os.sep, "/") for name in files.files}
    assert tracked_files() - shipped == set()
    assert not [name for name in shipped if name.endswith((".so", ".pyc"))]


def test_cibuildwheel_tries_wheels_with_an_existing_script():
    command = PROJECT["tool"]["cibuildwheel"]["test-command"]
    assert (ROOT / command.split("{project}/")[1]).is_file()


def test_issue_forms_ask_questions():
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*_*.yml"))
    if not forms:
        pytest.skip("the source package has no issue forms")
    for form in map(yaml.safe_load, (path.read_text() for path in forms)):
        assert {"name", "description", "body"} <= set(form)
        fields = [part for part in form["body"] if part["type"] != "markdown"]
        assert len({part["id"] for part in fields}) == len(fields) > 0
