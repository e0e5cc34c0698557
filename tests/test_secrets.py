"""No private key and no token is in a file of the project."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

SECRETS = {
    "private key": rb"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "cloud key": rb"\b(AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{35}",
    "repository token": rb"\bgh[pousr]_\w{36}|\bgithub_pat_\w{22,}|\bglpat-[\w-]{20}",
    "package index token": rb"\bpypi-AgE[\w-]{50,}|\bnpm_\w{36}",
    "service token": rb"\bxox[abprs]-[\w-]{10,}|\bhf_[A-Za-z]{34}|\bsk-(proj-|ant-)?[\w-]{32,}",
    "signed token": rb"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}",
}
EXAMPLES = {
    "private key": "-----BEGIN EC PRIVATE" + " KEY-----",
    "cloud key": "AKIA" + "Q" * 16,
    "repository token": "ghp" + "_" + "a1" * 18,
    "package index token": "pypi-AgE" + "x" * 60,
    "service token": "hf" + "_" + "b" * 34,
    "signed token": "eyJ" + "a" * 12 + ".eyJ" + "b" * 12 + "." + "c" * 12,
}


def secrets_in(content: bytes) -> list[str]:
    return [name for name, pattern in SECRETS.items() if re.search(pattern, content)]


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_would_be_found(name):
    assert secrets_in(b"x = '" + EXAMPLES[name].encode() + b"'\n") == [name]


def test_no_secret_is_in_the_project():
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no checkout of the repository")
    paths = [ROOT / name.decode() for name in listed.split(b"\0") if name]
    found = {str(p): secrets_in(p.read_bytes()) for p in paths if p.is_file()}
    assert len(found) > 100
    assert not {path: names for path, names in found.items() if names}
