"""Text in the tables of Markdown pages."""

from html import escape


def markdown_cell(text: str) -> str:
    """Escape a name or a message for a cell of a Markdown table."""
    return escape(" ".join(text.split()), quote=False).replace("|", "\\|")
