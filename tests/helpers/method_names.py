"""Finds code that depends on particular methods by their names."""

import ast
from collections.abc import Iterator

import torch

from aquila.methods import METHODS

PACKAGE = "aquila"
"""Both a method and the package, so only comparisons with this string count."""
IDENTIFIERS = {name for name in METHODS if not hasattr(torch.Tensor, name)} - {PACKAGE}
"""Names that a variable or an attribute must not have. Tensors have a `topk` of their own."""


def find_method_names(source: str) -> set[str]:
    """Return the methods that source code names in strings, identifiers or imports."""
    tree = ast.parse(source)
    return set(_identifiers(tree)) | set(_imports(tree)) | set(_strings(tree))


def _identifiers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        found = {
            ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg", ast.keyword: "arg",
            ast.FunctionDef: "name", ast.ClassDef: "name",
        }.get(type(node))  # fmt: skip
        if found is not None and getattr(node, found) in IDENTIFIERS:
            yield getattr(node, found)


def _imports(tree: ast.AST) -> Iterator[str]:
    """Yield the modules below `aquila.methods` and the methods that are imported."""
    for node in ast.walk(tree):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        for module in modules:
            parts = module.split(".")
            if parts[:2] == [PACKAGE, "methods"] or (parts[0] == PACKAGE and parts[-1] in METHODS):
                yield parts[-1]


def _strings(tree: ast.AST) -> Iterator[str]:
    compared = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare | ast.MatchValue | ast.Subscript)
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition(":")[0]
            if name in METHODS and (name != PACKAGE or id(node) in compared):
                yield name
