"""The method reference as Markdown, generated from the catalogue and module docstrings."""

import inspect
import re
from collections.abc import Iterable

from aquila.core.parameter import Parameter
from aquila.methods.parts.factory import MethodFactory

INTRODUCTION = """\
# All methods

This page is for users who look for a method by name. `aquila methods NAME` prints the paper, the
parameters and the behaviour of one method, and the site has a page with the same content. Each
name links to it; in the repository it links to the source file.

| where | how to choose a method |
|---|---|
| Python | `aquila.create("laq", alpha=0.1, bits=8)` |
| command line | `-m laq:alpha=0.1,bits=8` |

An unknown name or value raises an error that lists what is allowed.
[Which method to use](choosing.md) gives advice, and [all methods compared](method-comparison.md)
shows measured results.
[Add a method](add-a-method.md) shows how to write one.

The best step size `alpha` depends on your model and data: try 0.5, 0.1 and 0.02. `aquila run` and
`aquila compare` pass `--alpha` to all methods."""
ARXIV = re.compile(r"arXiv (\d{4}\.\d{5})")


def overview(entries: Iterable[MethodFactory]) -> str:
    """Return the page that lists all methods."""
    rows = [f"| [`{e.name}`](../{_source(e)}) | {_cell(e.summary)} |" for e in entries]
    return "\n".join([INTRODUCTION, "", "| method | what it does |", "|---|---|", *rows])


def page(entry: MethodFactory) -> str:
    """Return the page of one method."""
    source = _source(entry)
    facts = [
        ("Paper", ARXIV.sub(r"[arXiv \1](https://arxiv.org/abs/\1)", entry.paper)),
        ("When a reply is lost", entry.lost_reply),
        ("Reconstructed", entry.reconstruction),
        ("Source", f"[`{source}`](../{source})"),
    ]
    listed = "\n".join(f"- **{heading}:** {text}" for heading, text in facts if text)
    parts = [f"# `{entry.name}`", entry.summary, _table(entry.parameters.values()), listed]
    return "\n\n".join([*parts, _module_docstring(entry)])


def _source(entry: MethodFactory) -> str:
    return f"src/{entry.function.__module__.replace('.', '/')}.py"


def _table(parameters: Iterable[Parameter]) -> str:
    rows = [
        f"| `{p.name}` | `{p.default}` | {_cell(str(p))} | {_cell(p.help)} |" for p in parameters
    ]
    return "\n".join(["| parameter | default | allowed | meaning |", "|---|---|---|---|", *rows])


def _module_docstring(entry: MethodFactory) -> str:
    """Return the docstring of the method's module as a quotation."""
    text = inspect.getdoc(inspect.getmodule(entry.function)) or ""
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
