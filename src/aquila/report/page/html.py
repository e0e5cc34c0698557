"""HTML from Python values: whatever is not HTML already is escaped."""

from html import escape

Attribute = str | int | float | bool | None


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: Attribute) -> Html:
    """Return an element; `class_` stands for class, `aria_label` for aria-label and so on.

    An attribute that is None or False is left out, one that is True has no value.
    """
    return Html(f"<{name}{_attributes(attributes)}>{join_html(children)}</{name}>")


def void_tag(name: str, /, **attributes: Attribute) -> Html:
    """Return an element that has no content."""
    return Html(f"<{name}{_attributes(attributes)}>")


def join_html(children: tuple[str, ...] | list[str]) -> Html:
    """Put pieces one after the other."""
    return Html("".join(c if isinstance(c, Html) else escape(c) for c in children))


def _attributes(attributes: dict[str, Attribute]) -> str:
    parts = []
    for name, value in attributes.items():
        key = name.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(f" {key}")
        elif value is not None and value is not False:
            parts.append(f' {key}="{escape(str(value))}"')
    return "".join(parts)
