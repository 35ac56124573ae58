"""Plots as SVG, in a few lines: cost against captures, and against connections."""

from __future__ import annotations

import math
from html import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 40, 40, 50
LINE = 16  # of text
COLOURS = ("#1f6f8b", "#c8553d", "#588157", "#7b2d8b", "#b08900")

Series = dict[str, list[tuple[float, float]]]


def plot(title: str, across: str, up: str, series: Series) -> str:
    """Lines over logarithmic axes; all values must be above 0."""
    points = [point for line in series.values() for point in line]
    low_x, high_x = min(x for x, _ in points), max(x for x, _ in points)
    low_y, high_y = _decades(min(y for _, y in points), max(y for _, y in points))
    top = TOP + LINE * len(series)  # the names stand between title and plot, where no line is
    height = HEIGHT + LINE * len(series)

    def at(x: float, y: float) -> tuple[float, float]:
        across_share = math.log(x / low_x) / math.log(high_x / low_x) if high_x > low_x else 0.5
        up_share = math.log(y / low_y) / math.log(high_y / low_y)
        return (
            round(LEFT + across_share * (WIDTH - LEFT - RIGHT), 1),
            round(height - BOTTOM - up_share * (height - top - BOTTOM), 1),
        )

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{WIDTH / 2}" y="20" text-anchor="middle" font-size="15">{escape(title)}</text>',
        f'<text x="{WIDTH / 2}" y="{height - 10}" text-anchor="middle">{escape(across)}</text>',
        f'<text transform="translate(16 {(top + height - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">{escape(up)}</text>',
    ]
    mark = low_y
    while mark <= high_y * 1.001:
        _, y = at(low_x, mark)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{mark:,.12g}</text>')
        mark *= 10
    for value in sorted({x for x, _ in points}):
        x, _ = at(value, low_y)
        out.append(f'<text x="{x}" y="{height - BOTTOM + 18}" text-anchor="middle">{value:,.12g}</text>')
    for number, (name, line) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [at(x, y) for x, y in sorted(line)]
        path = " ".join(f"{x},{y}" for x, y in places)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in places]
        out.append(
            f'<text x="{LEFT + 10}" y="{TOP + 4 + LINE * number}" fill="{colour}">{escape(name)}</text>'
        )
    return "\n".join([*out, "</svg>"]) + "\n"


def _decades(low: float, high: float) -> tuple[float, float]:
    """The powers of ten around both."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return 10.0**first, 10.0 ** max(last, first + 1)
