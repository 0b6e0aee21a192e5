"""Text in the tables of Markdown pages."""

from html import escape


def markdown_cell(text: str) -> str:
    """A name or a message as it is, in a cell of a table: no line, bar or tag of it changes the page."""
    return escape(" ".join(text.split()), quote=False).replace("|", "\\|")
