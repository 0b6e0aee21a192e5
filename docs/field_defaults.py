"""Values of attributes in the reference: defaults of fields, as ``EncoderConfig()`` instead of ``field(...)``, alone.

An attribute that a method assigns has no default, so its value, an expression of local names, is left out.
"""

import ast
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


class FieldDefaults(griffe.Extension):
    """Replace the values of attributes that are no defaults."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Replace the value of one attribute."""
        value = attr.value
        if "instance-attribute" in attr.labels and "class-attribute" not in attr.labels:
            attr.value = None
        elif isinstance(value, griffe.ExprCall) and value.canonical_path == "dataclasses.field":
            attr.value = default_of(str(value))
