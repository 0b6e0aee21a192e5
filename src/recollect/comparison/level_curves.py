"""Scores by level as small panels beside each other: one subject in colour with its interval, the others behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, GAP, BELOW = 300, 150, 44, 68
"""Of a panel's frame, beside it, and under it."""
ACROSS = 2
"""Panels beside each other."""
STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #5b6470; font-variant-numeric: tabular-nums; }
.head { font-size: 13px; font-weight: 650; fill: #1b1f24; } .end { text-anchor: end; } .middle { text-anchor: middle; }
.grid { stroke: #e5e7ea; } .known { stroke: #5b6470; stroke-dasharray: 5 4; } .beyond { fill: #f3f5f7; }
.other { fill: none; stroke: #c3c9d1; stroke-width: 1.2; } .band { fill: #0b6bcb; opacity: .18; }
.curve { fill: none; stroke: #0b6bcb; stroke-width: 2.4; stroke-linejoin: round; } .dot { fill: #0b6bcb; }
"""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One measure."""

    title: str
    """Above the frame."""
    levels: Sequence[str]
    """Under the frame, at equal distances."""
    trained: int
    """How many of the levels are no harder than what was trained on; behind them the frame is shaded."""
    score: Sequence[float]
    """Of the subject, from 0 to 1."""
    low: Sequence[float]
    """Lower ends of its intervals."""
    high: Sequence[float]
    """Upper ends."""
    others: Sequence[Sequence[float]] = ()
    """Scores of those behind it."""
    chance: float
    """A dashed line."""


def level_curves_svg(name: str, panels: Sequence[Panel]) -> str:
    """The picture.

    Args:
        name: what it shows, for readers that cannot see it.
        panels: from left to right, two in a line.
    """
    across, down = min(ACROSS, len(panels)), -(-len(panels) // ACROSS)
    width, height = 40 + across * (WIDTH + GAP), 10 + down * (HEIGHT + BELOW)
    parts = [
        _panel(panel, 44 + place % ACROSS * (WIDTH + GAP), 34 + place // ACROSS * (HEIGHT + BELOW))
        for place, panel in enumerate(panels)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(name)}"><style>{STYLE}</style>'
        f'<rect width="{width}" height="{height}" fill="#fff" rx="8"/>{"".join(parts)}</svg>\n'
    )


def _panel(panel: Panel, left: float, top: float) -> str:
    bottom, space = top + HEIGHT, WIDTH / len(panel.levels)

    def x(place: int) -> float:
        return left + space * (place + 0.5)

    def y(score: float) -> float:
        return bottom - HEIGHT * min(max(score, 0.0), 1.0)

    def points(scores: Sequence[float]) -> list[str]:
        return [f"{x(place):.1f},{y(score):.1f}" for place, score in enumerate(scores)]

    edge = left + space * panel.trained
    parts = [f'<text class="head" x="{left}" y="{top - 12}">{escape(panel.title)}</text>']
    if panel.trained < len(panel.levels):
        parts.append(
            f'<rect class="beyond" x="{edge:.1f}" y="{top}" width="{left + WIDTH - edge:.1f}" height="{HEIGHT}"/>'
        )
    for score in (0.0, 0.5, 1.0):
        parts.append(
            f'<line class="grid" x1="{left}" x2="{left + WIDTH}" y1="{y(score):.1f}" y2="{y(score):.1f}"/>'
            f'<text class="end" x="{left - 6}" y="{y(score) + 4:.1f}">{score:g}</text>'
        )
    parts += [f'<polyline class="other" points="{" ".join(points(other))}"/>' for other in panel.others]
    chance = y(panel.chance)
    parts.append(f'<line class="known" x1="{left}" x2="{left + WIDTH}" y1="{chance:.1f}" y2="{chance:.1f}"/>')
    parts.append(f'<polygon class="band" points="{" ".join([*points(panel.high), *points(panel.low)[::-1]])}"/>')
    parts.append(f'<polyline class="curve" points="{" ".join(points(panel.score))}"/>')
    for place, level in enumerate(panel.levels):
        seen = f"{panel.score[place]:.3f} ({panel.low[place]:.3f} to {panel.high[place]:.3f})"
        parts.append(
            f'<circle class="dot" cx="{x(place):.1f}" cy="{y(panel.score[place]):.1f}" r="3.2">'
            f"<title>{escape(f'{panel.title}, {level}: {seen}')}</title></circle>"
            f'<text class="middle" x="{x(place):.1f}" y="{bottom + 18}">{escape(level)}</text>'
        )
    return "".join(parts)
