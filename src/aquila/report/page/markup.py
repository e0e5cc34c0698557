"""HTML from Python values: whatever is not HTML already is escaped."""

from html import escape

Attribute = str | int | float | bool | None


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: Attribute) -> Markup:
    """Return an element; `class_` stands for class, `aria_label` for aria-label and so on.

    An attribute that is None or False is left out, one that is True has no value.
    """
    return Markup(f"<{name}{_attributes(attributes)}>{join(children)}</{name}>")


def void(name: str, /, **attributes: Attribute) -> Markup:
    """Return an element that has no content."""
    return Markup(f"<{name}{_attributes(attributes)}>")


def join(children: tuple[str, ...] | list[str]) -> Markup:
    """Put pieces one after the other."""
    return Markup("".join(c if isinstance(c, Markup) else escape(c) for c in children))


def _attributes(attributes: dict[str, Attribute]) -> str:
    written = []
    for name, value in attributes.items():
        key = name.rstrip("_").replace("_", "-")
        if value is True:
            written.append(f" {key}")
        elif value is not None and value is not False:
            written.append(f' {key}="{escape(str(value))}"')
    return "".join(written)
