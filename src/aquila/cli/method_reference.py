"""The reference of the methods as Markdown, made of what the catalogue and their modules say."""

import inspect
import re
from collections.abc import Iterable

from aquila.core.parameter import Parameter
from aquila.methods.parts.factory import MethodFactory

INTRODUCTION = """\
# All methods

`aquila methods --markdown` prints this page; it is made from the code and cannot differ from it. In
Python a method is `aquila.create("laq", alpha=0.1, bits=8)`, on the command line
`-m laq:alpha=0.1,bits=8`. A name or value that is not allowed is refused with a sentence that says
what is. [When to use which method](choosing.md) compares them by what was measured;
[Add a method](add-a-method.md) shows how to write one.

`alpha`, the step size, has a default here, but it depends on your model and data: try 0.5, 0.1 and
0.02. `aquila run` and `compare` give all methods the same one, `--alpha`."""
ARXIV = re.compile(r"arXiv (\d{4}\.\d{5})")


def page(entries: Iterable[MethodFactory]) -> str:
    """Return the whole reference: an overview, and a section a method."""
    entries = list(entries)
    rows = [f"| [`{e.name}`](#{e.name}) | {_cell(e.summary)} |" for e in entries]
    overview = "\n".join(["| method | what it does |", "|---|---|", *rows])
    return "\n\n".join([INTRODUCTION, overview, *map(section, entries)])


def section(entry: MethodFactory) -> str:
    """Return everything about one method."""
    source = f"src/{entry.function.__module__.replace('.', '/')}.py"
    facts = [
        ("Paper", ARXIV.sub(r"[arXiv \1](https://arxiv.org/abs/\1)", entry.paper)),
        ("When a reply is lost", entry.lost_reply),
        ("Reconstructed", entry.reconstruction),
        ("Source", f"[`{source}`](../{source})"),
    ]
    listed = "\n".join(f"- **{heading}:** {text}" for heading, text in facts if text)
    parts = [f"## `{entry.name}`", entry.summary, _table(entry.parameters.values()), listed]
    return "\n\n".join([*parts, _module_docstring(entry)])


def _table(parameters: Iterable[Parameter]) -> str:
    rows = [
        f"| `{p.name}` | `{p.default}` | {_cell(str(p))} | {_cell(p.help)} |" for p in parameters
    ]
    return "\n".join(["| parameter | default | allowed | meaning |", "|---|---|---|---|", *rows])


def _module_docstring(entry: MethodFactory) -> str:
    """Return what the method's module tells of it, as a quotation."""
    told = inspect.getdoc(inspect.getmodule(entry.function)) or ""
    return "\n".join(f"> {line}".rstrip() for line in told.splitlines())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
