"""Pages that nobody writes: one for each paper's core that has no page of its own in docs/cores (a hook of mkdocs)."""

import re
from typing import Any

from mkdocs.structure.files import File, Files

from recollect.cores import CORES


def core_pages() -> dict[str, tuple[str, str]]:
    """Title and text by place; cores that share a module share a page, named after the first of them."""
    pages: dict[str, tuple[str, str]] = {}
    seen: dict[str, str] = {}
    for key, config in CORES.items():
        module = config.__module__
        if module not in seen:
            seen[module] = f"cores/{key}.md"
            first = (__import__(module, fromlist=["__doc__"]).__doc__ or key).splitlines()[0]
            title = re.split(r"[:.]|,(?![^(]*\))", first)[0]
            pages[seen[module]] = title, f"# {title}\n\n::: {module}\n"
    return pages


def on_config(config: Any) -> Any:
    """Put the pages in the navigation, behind the overview."""
    for section in config.nav:
        if "Cores" in section:
            section["Cores"] += [{title: place} for place, (title, _) in core_pages().items()]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that nobody wrote."""
    for place, (_, text) in core_pages().items():
        if files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, content=text))
    return files
