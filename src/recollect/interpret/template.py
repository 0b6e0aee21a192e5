"""A page of one file: the template, the style and the script of ``page/``, and data, with a policy that allows no more.

A hash allows the page's own style and script, and no other; no request is allowed at all.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from recollect.interpret.report import without_nan


def fill(
    name: str, title: str, meta: Mapping[str, Any], payload: str, *, styles: Sequence[str] = (), scripts: str = ""
) -> str:
    """The template with everything in its place.

    Args:
        name: ``page/NAME.html``, the body of ``page/page.html``, and ``page/NAME.js``.
        title: of the page.
        meta: what the script reads as JSON; NaN becomes null.
        payload: blocks of data, from :func:`block`.
        styles: ``page/STYLE.css``, one after the other; empty takes that of ``name``.
        scripts: more sources that the policy allows scripts to have.
    """
    folder = resources.files("recollect.interpret") / "page"
    template = (folder / "page.html").read_text().replace("{{body}}", (folder / f"{name}.html").read_text())
    script = _without_comments((folder / f"{name}.js").read_text())
    style = "".join((folder / f"{part}.css").read_text() for part in styles or (name,))
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
    """Data for a page, which its script finds by name."""
    return f'<script type="text/plain" id="{name}">{base64.b64encode(data).decode()}</script>'


def _without_comments(script: str) -> str:
    """The script without lines that are comments, and without indentation: they are for who reads the source."""
    lines = (line.strip() for line in re.sub(r"\A/\*.*?\*/", "", script, flags=re.DOTALL).splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("//", "/**")))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
