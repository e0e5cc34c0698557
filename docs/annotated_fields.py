"""Griffe extension: the API pages show what an `Annotated` field means as its description.

`clip: Annotated[float, Bounds("largest norm; 0: no limit", 0)]` becomes a parameter `clip` of type
`float` with the description "largest norm; 0: no limit".
"""

import ast
from typing import Any

from griffe import Attribute, Class, Docstring, Expr, ExprCall, ExprSubscript, ExprTuple, Extension

SECTION = "Args:\n"


class AnnotatedFields(Extension):
    """Moves the descriptions of annotated fields into the docstring of their class."""

    def on_class_members(self, *, cls: Class, **kwargs: Any) -> None:
        """Describe the annotated fields, before griffe makes parameters of dataclasses."""
        described = []
        for name, member in cls.members.items():
            if isinstance(member, Attribute) and isinstance(member.annotation, ExprSubscript):
                meaning = member.annotation.slice
                if str(member.annotation.left) == "Annotated" and isinstance(meaning, ExprTuple):
                    member.annotation = meaning.elements[0]
                    described.append(f"    {name}: {_description(meaning.elements[1])}\n")
        if described and cls.docstring:
            text, _, others = cls.docstring.value.partition(SECTION)
            cls.docstring = Docstring(
                f"{text.rstrip()}\n\n{SECTION}{''.join(described)}{others}", parent=cls
            )


def _description(annotation: str | Expr) -> str:
    """Return the text of an annotation, which may be the first argument of a call."""
    first = annotation.arguments[0] if isinstance(annotation, ExprCall) else annotation
    text: str = ast.literal_eval(str(first))
    return f"{text[0].upper()}{text[1:]}."
