"""Builds HTML from Python values; plain text is escaped."""

from html import escape

Attribute = str | int | float | bool | None


class Html(str):
    """Text that is already HTML."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: Attribute) -> Html:
    """Return an element. Write the attribute class as `class_`, aria-label as `aria_label`.

    An attribute that is None or False is omitted. One that is True has no value.
    """
    return Html(f"<{name}{_attributes(attributes)}>{join_html(children)}</{name}>")


def void_tag(name: str, /, **attributes: Attribute) -> Html:
    """Return an element without content."""
    return Html(f"<{name}{_attributes(attributes)}>")


def join_html(children: tuple[str, ...] | list[str]) -> Html:
    """Concatenate pieces, escaping plain text."""
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
