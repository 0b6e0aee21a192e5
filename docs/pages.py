"""Hooks of mkdocs: pages of cores that nobody wrote, tables of results on the pages of papers, parts that unfold.

Directives in pages, all of them comments, so that other renderers show nothing:

    <!-- recollect:settings KEY -->   settings of a core, from its config
    <!-- recollect:differs KEY -->    its deviations from the paper, from the docstring with its equations
    <!-- recollect:table NAME -->     a table of docs/results.md, folded; ``*`` is every table that no page shows
    <!-- recollect:references cores -->   links to the reference of every core

Drawings (``assets/mechanisms/*.svg``) are put into the page, so that they have the colours of its theme.
"""

import dataclasses
import importlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from recollect.cli.flags import field_texts
from recollect.cores import CORES

DOCS = Path(__file__).parent
ROLE = re.compile(r":(attr|class|data|func|meth|mod):<code>~?([\w.]+)</code>")
DIRECTIVE = re.compile(r"<!-- recollect:(settings|differs|table|references) (\S+) -->")
BLOCK = re.compile(r"<!-- recollect:(\S+):begin -->\n### (.*?)\n(.*?)<!-- recollect:\1:end -->", re.DOTALL)
DRAWING = re.compile(r'<img alt="([^"]*)" src="[./]*assets/mechanisms/([\w-]+)\.svg"\s*/?>')
SECTION = re.compile(
    r'(<nav class="md-nav" data-md-level="\d+" )aria-labelledby="__nav_([\d_]+)_label"([^>]*>)'
    r'(\s*<label class="md-nav__title"[^>]*>\s*<span class="md-nav__icon md-icon"></span>\s*)([^<]*?)(?=\s*</label>)'
)
LOG = re.compile(r"\bdocs/log\.md\b(?![^<]*</code>)")
CODE = re.compile(r"<code>([^<]*)</code>")
FLAG = re.compile(r"(?<![\w-])--?[a-z][\w.-]*")
FLAG_SHOWN = r'<span class="flag">\g<0></span>'
"""A line does not end behind the hyphens of a flag, where browsers may break it."""
PERCENT = re.compile(r"(\d) %(?![^<]*</code>)")
REST = "*"


def core_pages() -> dict[str, str]:
    """Text of the pages of every core, by place, in the order of ``CORES``; a page that somebody wrote wins.

    A core has a page that says what it is for, and one under Reference with its equations.
    """
    uses = _pages("cores", _settings_of, _generated)

    def reference(module: str, key: str) -> str:
        use = next(place for place, text in uses.items() if f"{_settings_of(key)}\n" in text)
        return _generated_reference(module, _heading(uses[use]), use)

    return uses | _pages("reference/cores", lambda key: f"::: {equations(CORES[key])}", reference)


def _settings_of(key: str) -> str:
    return f"<!-- recollect:settings {key} -->"


def _heading(page: str) -> str:
    return page.splitlines()[0].removeprefix("# ")


def _pages(folder: str, shows: Callable[[str], str], write: Callable[[str, str], str]) -> dict[str, str]:
    written = {f"{folder}/{path.name}": path.read_text() for path in sorted((DOCS / folder).glob("*.md"))}
    pages: dict[str, str] = {}
    for key in CORES:
        shown = [place for place, text in {**pages, **written}.items() if f"{shows(key)}\n" in text]
        place = shown[0] if shown else f"{folder}/{key}.md"
        pages[place] = written[place] if place in written else pages.get(place) or write(equations(CORES[key]), key)
    return pages


def equations(config: type) -> str:
    """Return the module with the equations of a core, which is that of the class ``X`` for ``XConfig``."""
    package, _, name = config.__module__.rpartition(".")
    if name != "config":
        return config.__module__
    return getattr(importlib.import_module(package), config.__name__.removesuffix("Config")).__module__


def _first_line(module: str, key: str) -> str:
    return (importlib.import_module(module).__doc__ or key).splitlines()[0]


def _title(module: str, key: str) -> str:
    return re.split(r"[:.]|,(?![^(]*\))", _first_line(module, key))[0]


def _generated(module: str, key: str) -> str:
    """The page of a core that nobody wrote one for."""
    config = CORES[key]
    return (
        f"# {_title(module, key)}\n\n{_first_line(module, key)} Source: {config.paper}.\n\n"
        f"```python\nfrom recollect import {config.__name__}\n\n"
        f"core = {config.__name__}(...).build(input_dim=10)\n```\n\n"
        f"## Settings\n\n{_settings_of(key)}\n\n"
        f"## Differences from the paper\n\n<!-- recollect:differs {key} -->\n\n"
        f"Equations and source: [reference](../reference/cores/{key}.md).\n"
    )


def _generated_reference(module: str, title: str, use: str) -> str:
    """The reference of a core that nobody wrote one for: its equations, settings, and the same as a plain loop."""
    text = f"# {title}\n\nUse, settings and differences: [{title}](../../{use}).\n\n::: {module}\n"
    package = module.rpartition(".")[0]
    for name in ("config", "reference"):
        if importlib.util.find_spec(f"{package}.{name}"):
            text += f"\n::: {package}.{name}\n"
    return text


def settings(key: str) -> str:
    """Return a table of the settings of a core: name, default, meaning."""
    config, lines = CORES[key], ["| setting | default | meaning |", "|---|---|---|"]
    explained = field_texts(config)
    for field in dataclasses.fields(config):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        shown = "required" if default is dataclasses.MISSING else f"`{_short(default)}`"
        meaning = " ".join(explained.get(field.name, "").split())
        lines.append(f"| `{field.name}` | {shown} | {_cell(meaning)} |")
    return "\n".join(lines)


def _short(value: Any) -> str:
    return f"{type(value).__name__}()" if dataclasses.is_dataclass(value) else repr(value).strip("'")


def _cell(text: str) -> str:
    return re.sub(r"``(.*?)``", r"`\1`", text).replace("|", "\\|")


def differs(key: str) -> str:
    """Return what a core does otherwise than its paper, from the docstring with its equations."""
    module = importlib.import_module(equations(CORES[key]))
    _, _, rest = inspect.cleandoc(module.__doc__ or "").partition("\nDiffers:")
    text = rest.strip() if rest.lstrip(" ").startswith("\n") else rest.strip().partition("\n\n")[0]
    text = re.sub(r":\w+:`~?([\w.]+)`", r"`\1`", text)
    kept, is_list = [], text.startswith("- ")
    for paragraph in text.split("\n\n"):
        if is_list and not paragraph.startswith("- "):
            break
        kept.append(paragraph)
    shown = re.sub(r"``(.*?)``", r"`\1`", "\n\n".join(kept))
    return shown[:1].upper() + shown[1:]


def on_config(config: Any) -> Any:
    """Put the pages of cores in the navigation, behind the overview."""
    for section, folder in (("Cores", "cores/"), ("Reference", "reference/cores/")):
        entries = next(part[section] for part in config.nav if section in part)
        titles = {place: _heading(text) for place, text in core_pages().items()}
        mine = [{title: place} for place, title in titles.items() if place.startswith(folder)]
        if section == "Cores":
            entries[1:1] = mine
        else:
            entries.append({"Cores": mine})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that nobody wrote, and the guide for contributors."""
    guide = (DOCS.parent / "CONTRIBUTING.md").read_text().replace("](docs/", "](")
    for place, text in {**core_pages(), "contributing.md": guide}.items():
        if files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, content=text))
    return files


def tables() -> dict[str, tuple[str, str]]:
    """Return heading and text of every table of docs/results.md, by name."""
    return {name: (title, text.strip()) for name, title, text in BLOCK.findall((DOCS / "results.md").read_text())}


def _shown_tables() -> Iterator[str]:
    for path in sorted((DOCS / "results").glob("*.md")):
        yield from (name for kind, name in DIRECTIVE.findall(path.read_text()) if kind == "table")


def table(name: str) -> str:
    """Return a table of docs/results.md: its heading, what it is about, and the rest folded.

    Raises:
        PluginError: no such table.
    """
    found = tables()
    if name == REST:
        shown = set(_shown_tables())
        return "\n\n".join(table(other) for other in found if other not in shown)
    if name not in found:
        raise PluginError(f"docs/results/ shows the table {name}, which docs/results.md does not have")
    title, text = found[name]
    about, _, rest = text.partition("\n\n")
    lines = rest.splitlines()
    rows = sum(line.startswith("| ") for line in lines) - sum(line.startswith("|---") for line in lines)
    heading = f"{rows} row{'s' if rows > 1 else ''}" if rows > 0 else "Details"
    return f"## {title}\n\n{about}\n\n{_folded(heading, _deeper(rest))}"


def _deeper(text: str) -> str:
    """Links of docs/results.md, from a page one folder below."""
    return re.sub(r"\]\((?!https?:|#)", "](../", text)


def _folded(summary: str, text: str) -> str:
    return f'<details markdown="1"><summary>{summary}</summary>\n\n{text}\n\n</details>'


def references(folder: str) -> str:
    """Return links from the overview of the reference to its pages in a folder."""
    shown = {place: text for place, text in core_pages().items() if place.startswith(f"reference/{folder}/")}
    return ", ".join(f"[{_heading(text)}]({place.removeprefix('reference/')})" for place, text in shown.items()) + "."


def folded_log(text: str) -> str:
    """Return the log with each entry folded under its heading."""
    head, *entries = re.split(r"^## ", text, flags=re.MULTILINE)
    parts = (entry.partition("\n") for entry in entries)
    return head + "\n\n".join(_folded(title, body.strip()) for title, _, body in parts) + "\n"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace the directives of a page; fold the log."""
    makers = {"settings": settings, "differs": differs, "table": table, "references": references}
    text = DIRECTIVE.sub(lambda found: makers[found[1]](found[2]), markdown)
    return folded_log(text) if page.file.src_uri == "log.md" else text


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Put drawings into the page. Full names in roles such as ``:class:`` become links, short ones code.

    Docstrings name the log by its path in the repository; here it becomes a link.
    """

    def shown(role: re.Match[str]) -> str:
        kind, name = role.groups()
        if not name.startswith("recollect."):
            return f"<code>{name}</code>"
        words = name.split(".")[-2 if kind == "mod" else -1 :]  # many modules are named core or reference
        return f'<autoref identifier="{name}" optional><code>{".".join(words)}</code></autoref>'

    html = LOG.sub(f'<a href="{"../" * page.url.count("/")}log/">log</a>', html)
    html = CODE.sub(lambda code: f"<code>{FLAG.sub(FLAG_SHOWN, code[1])}</code>", html)
    html = PERCENT.sub("\\1\u00a0%", html)  # a line does not end between a number and its unit
    html = re.sub(r"<th([^>]*)></th>", r"<td\1></td>", ROLE.sub(shown, html))  # a header without words is none
    return DRAWING.sub(lambda image: drawing(image[2], image[1]), html)


def on_post_page(output: str, **_: Any) -> str:
    """Name the search dialog and the parts of the navigation, which the theme leaves unnamed."""
    output = re.sub(r'(class="md-search"[^>]*role="dialog")', r'\1 aria-label="Search"', output)
    return SECTION.sub(r'\1aria-label="Section \2: \5"\3\4\5', output)


def drawing(name: str, description: str) -> str:
    """Return a drawing as an element of a page, in the page's colours instead of its own."""
    text = (DOCS / "assets" / "mechanisms" / f"{name}.svg").read_text()
    text = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    picture = text.replace("<svg ", f'<svg class="mechanism" role="img" aria-label="{description}" ', 1)
    return f'<span class="mechanism-frame" role="group" aria-label="Drawing" tabindex="0">{picture}</span>'
