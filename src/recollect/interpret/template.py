"""A page of one file: the template, the style and the scripts of ``page/``, and data.

Its content security policy allows the page's own style and script by their hashes, and no request at all.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from html import escape
from importlib import resources
from typing import Any

from recollect.files import without_nan

SCRIPTS = {
    "explorer": (
        "basics",
        "explorer/numbers",
        "explorer/episode",
        "explorer/recall",
        "explorer/drawing",
        "explorer/frame",
        "explorer/heads",
        "explorer/timeline",
        "explorer/panels",
        "explorer/tables",
        "explorer/control",
        "explorer/start",
    ),
    "live": ("basics", "live/worlds", "live/agent", "live/episode", "live/page"),
}
"""Parts of a page's script, joined in this order inside one function."""
STYLES = {"explorer": ("explorer",), "live": ("explorer", "live")}


def fill(name: str, title: str, meta: Mapping[str, Any], payload: str, *, scripts: str = "") -> str:
    """Fill the template of a page.

    Args:
        name: key of :data:`SCRIPTS`; ``page/NAME.html`` is the body of ``page/page.html``.
        title: of the page.
        meta: JSON for the script; NaN becomes null.
        payload: blocks of data, from :func:`block`.
        scripts: more sources from which the policy allows scripts.
    """
    folder = resources.files("recollect.interpret") / "page"

    def read(names: tuple[str, ...], ending: str) -> str:
        return "".join((folder / f"{part}.{ending}").read_text(encoding="utf-8") for part in names)

    template = read(("page",), "html").replace("{{body}}", read((name,), "html"))
    script = _without_comments('"use strict";\n(() => {\n' + read(SCRIPTS[name], "js") + "})();\n")
    style = read(STYLES[name], "css")
    policy = f"default-src 'none'; script-src {_hash(script)}{scripts}; style-src {_hash(style)}; img-src blob: data:"
    text = json.dumps(without_nan(meta), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    places = {
        "policy": f"{policy}; base-uri 'none'; form-action 'none'",
        "title": escape(title),
        "style": style,
        "meta": text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"),
        "payload": payload,
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda place: places[place[1]], template)


def block(name: str, data: bytes) -> str:
    """Return data as an element of a page, which its script finds by name."""
    return f'<script type="text/plain" id="{name}">{base64.b64encode(data).decode()}</script>'


def _without_comments(script: str) -> str:
    """Remove comments and indentation, which are for readers of the source."""
    lines = (line.strip() for line in re.sub(r"^\s*/\*.*?\*/", "", script, flags=re.DOTALL | re.MULTILINE).splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
