"""Hooks of mkdocs: a page for every core that no page of docs/cores shows, and roles of docstrings as links or code."""

import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from recollect.cores import CORES

WRITTEN = Path(__file__).parent / "cores"
ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>~?([\w.]+)</code>")


def core_pages() -> dict[str, str]:
    """Text of the page of every core, by place, in the order of ``CORES``; a page that somebody wrote wins."""
    written = {f"cores/{path.name}": path.read_text() for path in sorted(WRITTEN.glob("*.md"))}
    pages: dict[str, str] = {}
    for key, config in CORES.items():
        module = equations(config)
        shown = [place for place, text in {**pages, **written}.items() if f"::: {module}\n" in text]
        place = shown[0] if shown else f"cores/{key}.md"
        pages[place] = written[place] if place in written else pages.get(place) or generated(module, key)
    return pages


def equations(config: type) -> str:
    """Return the module with the equations of a core, which is that of the class ``X`` for ``XConfig``."""
    package, _, name = config.__module__.rpartition(".")
    if name != "config":
        return config.__module__
    return getattr(importlib.import_module(package), config.__name__.removesuffix("Config")).__module__


def generated(module: str, key: str) -> str:
    """The page of a core that nobody wrote one for: its equations, and the same as a plain loop."""
    first = (importlib.import_module(module).__doc__ or key).splitlines()[0]
    title = re.split(r"[:.]|,(?![^(]*\))", first)[0]
    text = f"# {title}\n\n::: {module}\n"
    package = module.rpartition(".")[0]
    if importlib.util.find_spec(f"{package}.config"):
        text += f"\n::: {package}.config\n"
    plain = f"{package}.reference"
    if importlib.util.find_spec(plain):
        text += f"\n## The plain form\n\n::: {plain}\n"
    return text


def on_config(config: Any) -> Any:
    """Put the pages in the navigation, behind the overview."""
    for section in config.nav:
        if "Cores" in section:
            titles = {place: text.splitlines()[0].removeprefix("# ") for place, text in core_pages().items()}
            section["Cores"] += [{title: place} for place, title in titles.items()]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that nobody wrote."""
    for place, text in core_pages().items():
        if files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, content=text))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Markdown does not know roles such as ``:class:``: full names become links, short ones become code."""

    def shown(role: re.Match[str]) -> str:
        name = role[1]
        if not name.startswith("recollect."):
            return f"<code>{name}</code>"
        return f'<autoref identifier="{name}" optional><code>{name.rpartition(".")[2]}</code></autoref>'

    return ROLE.sub(shown, html)
