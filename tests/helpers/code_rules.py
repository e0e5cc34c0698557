"""Rules about the size of files and functions, checked on the syntax tree.

Each check returns one sentence per violation, which names the place and the limit.
"""

import ast
from pathlib import Path

MAX_FILE_LINES = 300
MAX_PUBLIC_PARAMETERS = 8
MAX_PRIVATE_POSITIONALS = 7

Function = ast.FunctionDef | ast.AsyncFunctionDef


def check_file_length(path: Path, text: str) -> list[str]:
    """Check the number of lines of a file."""
    lines = len(text.splitlines())
    if lines <= MAX_FILE_LINES:
        return []
    return [f"{path}: {lines} lines, at most {MAX_FILE_LINES}: split the file"]


def check_function_length(path: Path, text: str, limit: int) -> list[str]:
    """Check the lines of each function, from `def` to the end, without the docstring."""
    return [
        f"{path}:{function.lineno}: {function.name} has {lines} lines, at most {limit}"
        for function in _functions(text)
        if (lines := _code_lines(function)) > limit
    ]


def check_parameters(path: Path, text: str) -> list[str]:
    """Check the parameters of public functions, and the positionals of private ones.

    `self` and `cls` do not count, and neither does `**options`. GPU kernels are exempt, because a
    kernel cannot take an object.
    """
    found = []
    for function in _functions(text):
        if _is_kernel(function):
            continue
        place = f"{path}:{function.lineno}: {function.name}"
        positionals, keywords = _count_parameters(function)
        if _is_private(function):
            if positionals > MAX_PRIVATE_POSITIONALS:
                found.append(
                    f"{place} has {positionals} positional parameters, "
                    f"at most {MAX_PRIVATE_POSITIONALS}: pass an object"
                )
        elif positionals + keywords > MAX_PUBLIC_PARAMETERS:
            found.append(
                f"{place} has {positionals + keywords} parameters, "
                f"at most {MAX_PUBLIC_PARAMETERS}: pass an object"
            )
    return found


def _functions(text: str) -> list[Function]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, Function)]


def _code_lines(function: Function) -> int:
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is None:
        return lines
    docstring = function.body[0]
    return lines - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def _count_parameters(function: Function) -> tuple[int, int]:
    given = function.args
    names = [parameter.arg for parameter in (*given.posonlyargs, *given.args)]
    return len(names) - (names[:1] in (["self"], ["cls"])), len(given.kwonlyargs)


def _is_private(function: Function) -> bool:
    return function.name.startswith("_") and not function.name.startswith("__")


def _is_kernel(function: Function) -> bool:
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)
