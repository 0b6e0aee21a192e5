"""Fields of classes in the reference: defaults as ``EncoderConfig()``, not ``field(...)``, and comments as text.

An attribute that a method assigns has no default, so its value, an expression of local names, is left out. The fields
of states have their axes in a comment behind them (``h: Tensor  # b l d``), which is shown where there is no docstring.
"""

import ast
import re
from typing import Any

import griffe


def default_of(call: str) -> str | None:
    """Return what a call of ``dataclasses.field`` has as default, as source; None if it has none."""
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    if "default" in given:
        return ast.unparse(given["default"])
    factory = given.get("default_factory")
    if factory is None:
        return None
    if isinstance(factory, ast.Lambda):
        return ast.unparse(factory.body)
    return {"dict": "{}", "list": "[]"}.get(ast.unparse(factory), f"{ast.unparse(factory)}()")


def described(line: str) -> str | None:
    """Return the comment behind a field as Markdown, its axes as code; None if it has none."""
    comments = [part.strip() for part in line.split("  # ")[1:] if not part.startswith("type:")]
    if not comments:
        return None
    axes, separator, rest = comments[-1].partition(", ")
    if re.match(r"b( |$)", axes):
        return f"Axes `{axes}`{separator}{rest}"
    return re.sub(r"\[[^\]]*\]", r"`\g<0>`", comments[-1])


class Fields(griffe.Extension):
    """Replace values that are no defaults, and describe fields by their comments."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Change one attribute."""
        if attr.docstring is None and attr.annotation is not None and attr.parent is not None and attr.parent.is_class:
            text = described(attr.lines[-1]) if attr.lines else None
            attr.docstring = griffe.Docstring(text, parent=attr) if text else None
        value = attr.value
        if "instance-attribute" in attr.labels and "class-attribute" not in attr.labels:
            attr.value = None
        elif isinstance(value, griffe.ExprCall) and value.canonical_path == "dataclasses.field":
            attr.value = default_of(str(value))
