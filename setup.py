"""What pyproject.toml cannot state: a check of the C compiler, and a description for indexes.

README.md has links to files of the repository, which do not work on the page of an index.
"""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Mapping
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
COMPILING = {"bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install"}
# an image or a link to a file, not to a URL and not to an anchor of the same page
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def compiler_problem(environment: Mapping[str, str]) -> str | None:
    """Return why the C code cannot be compiled, as one sentence, or None if it can."""
    command = shlex.split(environment.get("CC") or sysconfig.get_config_var("CC") or "cc")
    command += shlex.split(environment.get("CFLAGS", "") + " " + environment.get("CPPFLAGS", ""))
    command += [f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")]
    command += ["-fsyntax-only", "-x", "c", "-"]
    begin = "AQUILA's C code cannot be compiled: "
    try:
        done = subprocess.run(
            command, input="#include <Python.h>\n", capture_output=True, text=True, env=environment
        )
    except OSError:
        return f"{begin}there is no C compiler {command[0]!r}; install GCC or Clang, or set CC."
    if done.returncode == 0:
        return None
    if "Python.h" in done.stderr:
        return (
            f"{begin}{command[0]!r} does not find Python.h; install the headers of Python "
            "(the package python3-dev or python3-devel of your system)."
        )
    complaint = next(iter(done.stderr.strip().splitlines()), f"exit status {done.returncode}")
    return f"{begin}{command[0]!r} does not work ({complaint}); install GCC or Clang, or set CC."


def description(readme: str, repository: str | None, version: str) -> str:
    """Return the README with links that work outside the repository.

    They lead to the files of the version's tag. Without a repository, they become names of files.
    """

    def rewrite(link: re.Match[str]) -> str:
        mark, text, target = link.groups()
        if repository is None:
            return f"{text} (`{target.partition('#')[0]}`)"
        kind = "raw" if mark else "blob"
        return f"{mark}[{text}]({repository.rstrip('/')}/{kind}/v{version}/{target})"

    return LINK.sub(rewrite, readme)


def read_description() -> str:
    """Return the description of this version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    namespace: dict[str, str] = {}
    exec((ROOT / "src" / "aquila" / "version.py").read_text(encoding="utf-8"), namespace)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return description(readme, project["urls"].get("Repository"), namespace["__version__"])


if __name__ == "__main__":
    if COMPILING & set(sys.argv) and (problem := compiler_problem(os.environ)):
        sys.exit(problem)
    setup(long_description=read_description(), long_description_content_type="text/markdown")
