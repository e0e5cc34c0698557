"""Without a working C compiler, the installation ends with one sentence."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from helpers.setup_script import SETUP, load_setup

BEGIN = "AQUILA's C code cannot be compiled: "


def run_setup(command: str, compiler: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SETUP), command, "--help"],
        cwd=SETUP.parent, env={**os.environ, "CC": compiler}, capture_output=True, text=True,
    )  # fmt: skip


def script(folder: Path, text: str) -> str:
    """Write a compiler that only does this."""
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("command", ["bdist_wheel", "editable_wheel", "build_ext"])
def test_a_build_without_a_compiler_prints_one_sentence(command):
    done = run_setup(command, "/nowhere/cc")
    sentence = "there is no C compiler '/nowhere/cc'; install GCC or Clang, or set CC.\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", BEGIN + sentence)


def test_the_source_package_needs_no_compiler():
    assert run_setup("sdist", "/nowhere/cc").returncode == 0


def test_the_compiler_of_this_python_works():
    if sysconfig.get_config_var("CC") is None:
        pytest.skip("this Python was not built by a C compiler with options like GCC's")
    assert load_setup().compiler_problem(os.environ) is None


def test_missing_headers_of_python_are_named(tmp_path):
    compiler = script(tmp_path, "echo 'fatal error: Python.h: No such file' >&2; exit 1")
    problem = load_setup().compiler_problem({**os.environ, "CC": compiler})
    assert problem.startswith(f"{BEGIN}{compiler!r} does not find Python.h; install the headers")


@pytest.mark.parametrize(
    ("text", "reason"),
    [("echo 'no license' >&2; exit 3", "(no license)"), ("exit 3", "(exit status 3)")],
)
def test_a_broken_compiler_is_quoted(tmp_path, text, reason):
    compiler = script(tmp_path, text)
    problem = load_setup().compiler_problem({**os.environ, "CC": compiler})
    sentence = f"{compiler!r} does not work {reason}; install GCC or Clang, or set CC."
    assert problem == BEGIN + sentence
