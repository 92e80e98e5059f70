"""What the suite measured: figures with their baselines and bounds, curves, notes.

Not here: measuring (one module a part), drawing (`curves.py`).

- A figure is the median of several rounds. Its ratio is the median of the rounds' ratios: each
  round measures both sides one after the other, so that both saw the same machine.
"""

import math
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Measure = Callable[[], Awaitable[float]]


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What is asked of a figure's ratio, or of its value where it has none.

    Attributes:
        must: missing it is a defect.
        aim: what it should be.
        at_least: whether more is better.
    """

    must: float
    aim: float
    at_least: bool = False

    def verdict(self, measured: float) -> str:
        """`aim`, `must` or `missed`: the best that is reached."""
        for name, bound in (("aim", self.aim), ("must", self.must)):
            if measured >= bound if self.at_least else measured <= bound:
                return name
        return "missed"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured thing, what it is compared with, and what is asked of it.

    Attributes:
        ratios: of each round, the value over the baseline; none without a baseline.
    """

    name: str
    value: float
    unit: str
    against: str = ""
    baseline: float | None = None
    ratios: Sequence[float] = ()
    bounds: Bounds | None = None

    @property
    def ratio(self) -> float | None:
        """The median of the rounds' ratios."""
        return statistics.median(self.ratios) if self.ratios else None

    @property
    def verdict(self) -> str:
        """What of its bounds it reaches; empty where nothing is asked of it."""
        measured = self.value if self.ratio is None else self.ratio
        return "" if self.bounds is None else self.bounds.verdict(measured)

    def as_json(self) -> dict[str, Any]:
        """The figure for scripts."""
        bounds = {} if self.bounds is None else vars(self.bounds) | {"verdict": self.verdict}
        return {
            "name": self.name,
            "value": rounded(self.value),
            "unit": self.unit,
            "against": self.against,
            "baseline": None if self.baseline is None else rounded(self.baseline),
            "ratio": None if self.ratio is None else rounded(self.ratio),
            "ratios": [rounded(r) for r in self.ratios],
            **bounds,
        }


@dataclass(frozen=True)
class Curve:
    """Lines over one axis: label → (x, y) points. `x` and `y` say what they count."""

    name: str
    x: str
    y: str
    lines: dict[str, list[tuple[float, float]]]


@dataclass
class Report:
    """What one part found; notes say what a figure cannot."""

    figures: list[Figure] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The report for scripts."""
        return {
            "figures": [figure.as_json() for figure in self.figures],
            "curves": [vars(curve) for curve in self.curves],
            "notes": self.notes,
        }

    def as_table(self) -> str:
        """The figures as Markdown, then the notes."""
        rows = ["| figure | value | against | ratio, lowest–highest | must, aim | reached |"]
        rows.append("|---" * 6 + "|")
        return "\n".join([*rows, *map(_row, self.figures), *(f"\n{note}" for note in self.notes)])


def compared(
    name: str,
    unit: str,
    values: Sequence[float],
    against: str,
    baselines: Sequence[float],
    bounds: Bounds | None = None,
) -> Figure:
    """The figure of rounds that measured something and its baseline in turn."""
    return Figure(
        name=name,
        value=statistics.median(values),
        unit=unit,
        against=against,
        baseline=statistics.median(baselines),
        ratios=[value / base for value, base in zip(values, baselines, strict=True)],
        bounds=bounds,
    )


async def in_turn(rounds: int, *measures: Measure) -> list[list[float]]:
    """What each of these measured in each round; every other round goes backwards."""
    found: list[list[float]] = [[] for _ in measures]
    order = list(enumerate(measures))
    for _ in range(rounds):
        for number, measure in order:
            found[number].append(await measure())
        order.reverse()
    return found


def share(values: Sequence[float], part: float) -> float:
    """The value that so large a part of them does not exceed."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def rounded(value: float) -> float:
    """Three digits that count."""
    return value if value == 0 else round(value, max(0, 2 - math.floor(math.log10(abs(value)))))


def _row(figure: Figure) -> str:
    bounds, ratio = figure.bounds, figure.ratio
    sign = "≥" if bounds is not None and bounds.at_least else "≤"
    against = figure.against
    if figure.baseline is not None:
        against = f"{against}: {rounded(figure.baseline):g}"
    cells = [
        figure.name,
        f"{rounded(figure.value):g} {figure.unit}".rstrip(),
        against,
        "" if ratio is None else f"{rounded(ratio):g} ({_range(figure.ratios)})",
        "" if bounds is None else f"{sign} {bounds.must:g}, {bounds.aim:g}",
        figure.verdict,
    ]
    return f"| {' | '.join(cells)} |"


def _range(ratios: Sequence[float]) -> str:
    return f"{rounded(min(ratios)):g}–{rounded(max(ratios)):g}"
