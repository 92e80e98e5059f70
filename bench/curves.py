"""Curves as SVG: one picture of several panels, both axes logarithmic.

Not here: what is drawn (`figures.Curve`).
"""

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from bench.figures import Curve, rounded

WIDTH: Final = 460
HEIGHT: Final = 300
LEFT: Final = 64
RIGHT: Final = 16
TOP: Final = 40
BOTTOM: Final = 48
COLOURS: Final = ("#1b6ca8", "#c0392b", "#2e7d32", "#8e44ad", "#b9770e", "#37474f")


def drawn(curves: Sequence[Curve]) -> str:
    """The picture of these curves, one panel below the other."""
    panels = "\n".join(_panel(curve, n * HEIGHT) for n, curve in enumerate(curves))
    height = max(1, len(curves)) * HEIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n{panels}\n</svg>\n'
    )


class _Axis:
    """Where values lie between two pixels, by their logarithm."""

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        self._low, self._high = math.log(min(values)), math.log(max(values))
        self._first, self._last = first, last

    def at(self, value: float) -> float:
        """The pixel of a value."""
        part = (math.log(value) - self._low) / ((self._high - self._low) or 1.0)
        return round(self._first + part * (self._last - self._first), 1)


def _panel(curve: Curve, top: int) -> str:
    points = [point for line in curve.lines.values() for point in line]
    xs, ys = sorted({x for x, _ in points}), [y for _, y in points]
    ticks = _ticks(min(ys), max(ys))
    across = _Axis(xs, LEFT, WIDTH - RIGHT)
    up = _Axis([*ys, *ticks], top + HEIGHT - BOTTOM, top + TOP)
    out = [_text(LEFT, top + 16, f"{curve.name}: {curve.y}", "start", "bold")]
    out += [_grid(up.at(tick), f"{rounded(tick):g}") for tick in ticks]
    out += [_text(across.at(x), top + HEIGHT - BOTTOM + 16, f"{x:g}", "middle") for x in xs]
    out.append(_text(WIDTH / 2, top + HEIGHT - 12, curve.x, "middle"))
    for n, (label, line) in enumerate(curve.lines.items()):
        colour = COLOURS[n % len(COLOURS)]
        places = [(across.at(x), up.at(y)) for x, y in line]
        path = " ".join(f"{x},{y}" for x, y in places)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in places]
        out.append(_text(LEFT + 8 + 130 * n, top + 32, label, "start", "bold", colour))
    return "\n".join(out)


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten around these values."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    every = [step * 10.0**power for power in powers for step in (1, 2, 5)]
    first = max(tick for tick in every if tick <= low)
    last = min((tick for tick in every if tick >= high), default=every[-1])
    return [tick for tick in every if first <= tick <= last]


def _grid(y: float, label: str) -> str:
    line = f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#ddd"/>'
    return f"{line}\n{_text(LEFT - 6, y + 4, label, 'end')}"


def _text(
    x: float, y: float, text: str, anchor: str, weight: str = "normal", colour: str = "#222"
) -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{colour}">{escape(text)}</text>'
    )
