"""The card of a certificate, for people (a table) and for machines (JSON)."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

Status = Literal["pass", "fail", "exempt", "skip"]

STYLES: dict[Status, str] = {"pass": "green", "fail": "bold red", "exempt": "yellow", "skip": "dim"}


@dataclass(frozen=True, kw_only=True)
class Line:
    """Result of one promise of the contract."""

    name: str
    status: Status
    detail: str
    """What was compared and how closely it agreed, or which step and row differ and by how much."""
    cause: str = ""
    """Usual reason of such a failure."""
    reason: str = ""
    """Why the core is exempt."""
    numbers: dict[str, Any] = field(default_factory=dict)
    """Measurements behind ``detail``."""
    seconds: float = 0.0

    def text(self) -> str:
        """Return the detail, with the reason of an exemption or the likely cause of a failure."""
        if self.status == "exempt":
            return f"exempt: {self.reason} ({self.detail})"
        return f"{self.detail}\nlikely cause: {self.cause}" if self.cause else self.detail


@dataclass(frozen=True, kw_only=True)
class Card:
    """Result of one certificate."""

    core: str
    config: str
    """The certified config, as Python."""
    lines: tuple[Line, ...]
    parameters: int
    state_bytes: int
    """Bytes of one row's state."""
    size_seed: int | None = None
    """Seed of the sizes and modes that were drawn, which ``--size-seed`` repeats; None where none were."""
    dtype: str
    """Dtype in which results were compared."""
    versions: dict[str, str]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether no line failed (exempt and inapplicable lines do not count)."""
        return not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the lines that failed."""
        return self.named("fail")

    def named(self, status: Status) -> tuple[str, ...]:
        """Return the names of the lines with a status."""
        return tuple(line.name for line in self.lines if line.status == status)

    def __getitem__(self, name: str) -> Line:
        """The line of that name."""
        for line in self.lines:
            if line.name == name:
                return line
        raise KeyError(f"no line {name!r} on this card; it has {', '.join(line.name for line in self.lines)}")

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, ready for ``json.dumps``."""
        return {**asdict(self), "passed": self.passed, "failed": list(self.failed)}

    def to_json(self, indent: int | None = 2) -> str:
        """Return the card as JSON."""
        return json.dumps(self.as_dict(), indent=indent)

    def verdict(self) -> str:
        """Return the card in one sentence."""
        counts = {status: len(self.named(status)) for status in STYLES}
        words = [f"{counts['pass']} of {len(self.lines)} lines pass"]
        words += [f"{counts['fail']} fail: {', '.join(self.failed)}"] if counts["fail"] else []
        words += [f"{counts['exempt']} exempt"] if counts["exempt"] else []
        words += [f"{counts['skip']} not applicable"] if counts["skip"] else []
        words += [f"long run {self.long_run()}"] if self.long_run() else []
        return "; ".join(words)

    def long_run(self) -> str:
        """Return steps and time of the long run; empty where there was none."""
        for line in self.lines:
            if line.name == "state-bytes" and "steps" in line.numbers:
                steps, asked = line.numbers["steps"], line.numbers["asked"]
                length = f"{steps:,} steps" if steps >= asked else f"{steps:,} of {asked:,} steps"
                return f"{length} in {line.numbers['seconds']:.0f} s".replace(",", " ")
        return ""

    def __rich__(self) -> Group:
        head = Text.assemble((self.core, "bold"), f"  {self.config}" if self.config else "")
        drawn = "" if self.size_seed is None else f"sizes drawn by --size-seed {self.size_seed}, "
        facts = Text(
            f"{self.parameters:,} parameters, {self.state_bytes:,} bytes of state per row, compared in "
            f"{self.dtype}, {drawn}torch {self.versions.get('torch', '?')}, {self.seconds:.1f} s",
            style="dim",
        )
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(ratio=1, overflow="fold")
        for line in self.lines:
            table.add_row(Text(line.status, style=STYLES[line.status]), Text(line.name), Text(line.text()))
        return Group(head, facts, table, Text(self.verdict(), style="green" if self.passed else "bold red"))

    def __str__(self) -> str:
        console = Console(width=120, color_system=None, force_terminal=False, highlight=False)
        with console.capture() as capture:
            console.print(self)
        return "\n".join(row.rstrip() for row in capture.get().splitlines())


def summary(cards: list[Card]) -> Table:
    """Return a table of many cards: numbers of passed and inapplicable lines, names of the others, the long run."""
    table = Table(box=None, padding=(0, 1, 0, 0))  # fits 80 columns
    table.add_column("core", no_wrap=True)
    for status in ("pass", "skip"):
        table.add_column(status, justify="right", min_width=len(status))
    for status in ("fail", "exempt"):
        table.add_column(status, overflow="fold", min_width=len(status))
    table.add_column("long run, steps", no_wrap=True)
    table.add_column("s", justify="right", no_wrap=True)
    for card in cards:
        fail, exempt = (", ".join(card.named(status)) for status in ("fail", "exempt"))
        table.add_row(
            card.core,
            Text(str(len(card.named("pass"))), style=STYLES["pass"]),
            Text(str(len(card.named("skip"))), style=STYLES["skip"]),
            Text(fail or "-", style=STYLES["fail"] if fail else ""),
            Text(exempt or "-", style=STYLES["exempt"] if exempt else ""),
            (card.long_run() or "-").replace(" steps", ""),
            f"{card.seconds:.1f}",
        )
    return table
