"""The parser of flags, whose errors are one line as all errors of the command are."""

import io
import re
import sys
import textwrap
from collections.abc import Sequence
from contextlib import redirect_stderr
from typing import Any

RULE = "-─╰╯ "
REWORDINGS = (
    (r"invalid literal for int\(\) with base 10: ('.*')", r"\1 is no whole number"),
    (r"no type matching \{None\}\|INT could be instantiated from \[('[^']*')\].*", r"\1 is no whole number"),
    (r"no type matching \{None\}\|FLOAT could be instantiated from \[('[^']*')\].*", r"\1 is no number"),
    (r"Could not find valid parse for arguments: \[(.*)\]", r"cannot read \1"),
    (r"could not convert string to float: ('.*')", r"\1 is no number"),
    (r"^Error parsing (?:config|options)\.([\w.]+): (\w+=)", r"\1.\2"),
    (r"^Error parsing (?:config|options): ", ""),
    (r"^Error parsing ", ""),
    (r" \((?:required|default: [^)]*)\)", ""),
    (r"\.?;;", "; "),
    (r"^Missing from [^:]*: ", "missing: "),
    (r"^Unrecognized options: ", "unknown: "),
    (r"(^missing: |; )(?:STR|PATH|INT|FLOAT): ", r"\1"),
    (r"^Missing value for argument '([\w.-]+)'\. Expected \d+ values?", r"\1: no value was given"),
)
"""What the parser writes, and the same as the other errors say it."""


def parse_flags(form: Any, words: Sequence[str], *, program: str, about: str | None = None) -> Any:
    """Parse words into an instance of a class.

    Args:
        form: dataclass whose fields are flags.
        words: what was typed.
        program: command and what precedes the flags, for the usage line.
        about: description of the command; None takes the docstring of the class.

    Raises:
        ValueError: what was typed does not fit, on one line.
        SystemExit: the help was printed.
    """
    import tyro  # not for the help of train

    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            parsed = tyro.cli(form, prog=f"recollect {program}", description=about, args=list(words))
    except SystemExit as end:
        if not end.code:
            raise
        raise ValueError(f"{one_line(printed.getvalue())}. recollect {program} --help shows the flags") from None
    sys.stderr.write(printed.getvalue())
    return parsed


def one_line(text: str) -> str:
    """Return the message in a framed text of the parser, with the flag it suggests, as one line."""
    lines = [line.strip("│") for line in text.splitlines()[1:]]  # without the title
    inside = textwrap.dedent("\n".join("" if not line.strip(RULE) else line.rstrip() for line in lines))
    parts = [part.split("\n") for part in re.split(r"\n{2,}", inside.strip("\n"))]
    message = _join(parts[0])
    for pattern, plain in REWORDINGS:
        message = re.sub(pattern, plain, message)
    message = message.rstrip(".")
    for title, *flags in parts[1:]:
        if title.strip() == "Perhaps you meant:" and flags:
            message += f", did you mean {flags[0].split()[0]}"
    return message


def _join(lines: Sequence[str]) -> str:
    """Join lines to one: a colon follows a name that indented lines describe, a semicolon its description."""
    joined = ""
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        depth, deeper = (len(text) - len(text.lstrip()) for text in (line, following))
        named, ends = 0 < depth < deeper, 0 < deeper < depth
        joined += f"{line.strip()}: " if named else f"{line.strip()};;" if ends else f"{line.strip()} "
    return joined.strip()
