"""The hint names the place that the package was installed from."""

import json
from pathlib import Path

import pytest

from aquila.runtime import install_hint as module
from aquila.runtime.install_hint import install_hint


class Installed:
    def __init__(self, source):
        self.source = source

    def read_text(self, name):
        assert name == "direct_url.json"
        return None if self.source is None else json.dumps(self.source)


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        (None, "pip install 'aquila-fl[report]'"),
        (
            {"url": "file:///my%20code/aquila", "dir_info": {"editable": True}},
            "pip install -e '/my code/aquila[report]'",
        ),
        ({"url": "file:///code/aquila", "dir_info": {}}, "pip install '/code/aquila[report]'"),
        (
            {"url": "https://host/aquila.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "pip install 'aquila-fl[report] @ git+https://host/aquila.git'",
        ),
        (
            {"url": "file:///a/aquila.whl", "archive_info": {}},
            "pip install 'aquila-fl[report] @ file:///a/aquila.whl'",
        ),
    ],
)
def test_hint_repeats_the_way_of_installation(monkeypatch, source, hint):
    monkeypatch.setattr(module, "distribution", lambda name: Installed(source))
    assert install_hint("report") == hint


def test_hint_in_the_checkout_is_short(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    source = {"url": Path.cwd().as_uri(), "dir_info": {"editable": True}}
    monkeypatch.setattr(module, "distribution", lambda name: Installed(source))
    assert install_hint("flower") == "pip install -e '.[flower]'"


def test_source_without_installation_gets_the_command_of_a_checkout(monkeypatch):
    def missing(name):
        raise module.PackageNotFoundError(name)

    monkeypatch.setattr(module, "distribution", missing)
    assert install_hint("mlflow") == "pip install -e '.[mlflow]'"
