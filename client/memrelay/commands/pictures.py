"""Draws counts as a picture: bars by name, and columns by time, in an SVG file.

It does not own what is counted, or what a terminal shows (`charts.py`). The library is an extra,
and is loaded when a picture is wanted. A person's own settings of it are left out: one of them
has it run another program.
"""

import io
import warnings
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from memrelay.commands.streams import printable, warn
from memrelay.commands.tables import cut
from memrelay.config import expand_home
from memrelay.errors import ConfigError
from memrelay.secure_files import replace_file

_WIDTH = 9.0  # inches, as all sizes of the library are
_COLUMNS_HEIGHT, _BAR_HEIGHT, _PANEL_HEIGHT = 2.6, 0.28, 0.7
_LABEL_WIDTH, _TITLE_WIDTH = 40, 80  # as columns of a terminal
_TIMES_MAX = 10  # that stand below an axis
_SETTINGS = {
    "svg.fonttype": "none",  # texts stay texts, so that a reader's fonts show all scripts
    "text.parse_math": False,  # a name may hold any characters
}


class Panel(NamedTuple):
    """A chart: the numbers of each series, one for each label.

    With `is_by_time`, labels are times, in order, and each has a column. Else each has a bar.
    """

    title: str
    labels: Sequence[str]
    series: Mapping[str, Sequence[int]]
    is_by_time: bool = False


def add_svg_option(parser: ArgumentParser) -> None:
    """Add the option by which a command also draws what it shows."""
    parser.add_argument(
        "--svg", type=_parse_file, metavar="FILE", help="draw it there, too: needs client[charts]"
    )


def _parse_file(text: str) -> Path:
    """Return the file to draw in; only a picture is ever replaced by one.

    Raises:
        ArgumentTypeError: its name is not that of an SVG file.
    """
    path = expand_home(text)
    if path.suffix.lower() != ".svg":
        raise ArgumentTypeError("the file's name must end in .svg")
    return path


def find_library() -> Any:
    """Return the library that draws.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import matplotlib.figure  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigError(
            'A picture needs an extra; in a checkout: pip install "./client[charts]"'
        ) from None
    return matplotlib


def save_picture(path: Path, title: str, panels: Sequence[Panel]) -> None:
    """Draw charts below each other in a file that this user alone may read, and say so.

    Raises:
        ConfigError: the library is not installed, or the file cannot be written.
    """
    library = find_library()
    drawn = io.BytesIO()
    heights = [_measure(panel) for panel in panels]
    with _plain_settings(library):
        figure = library.figure.Figure(figsize=(_WIDTH, sum(heights) + 0.5), layout="constrained")
        figure.suptitle(_clean(title, _TITLE_WIDTH))
        axes = figure.subplots(len(panels), squeeze=False, height_ratios=heights)
        for panel, [axis] in zip(panels, axes, strict=True):
            _draw(panel, axis, library)
        figure.savefig(
            drawn, format="svg", metadata={"Date": None, "Title": _clean(title, _TITLE_WIDTH)}
        )
    replace_file(path, drawn.getvalue())
    warn(f"The picture is in {path}.")


@contextmanager
def _plain_settings(library: Any) -> Iterator[None]:
    with library.rc_context(), warnings.catch_warnings():
        # Of characters that its own font lacks: a reader's fonts draw them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        library.rcdefaults()
        library.rcParams.update(_SETTINGS)
        yield


def _measure(panel: Panel) -> float:
    bars = 0 if panel.is_by_time else len(panel.labels)
    return _PANEL_HEIGHT + (_COLUMNS_HEIGHT if panel.is_by_time else bars * _BAR_HEIGHT)


def _draw(panel: Panel, axis: Any, library: Any) -> None:
    axis.set_title(_clean(panel.title, _TITLE_WIDTH), loc="left", fontsize="medium")
    axis.spines[["top", "right"]].set_visible(False)
    counts = axis.yaxis if panel.is_by_time else axis.xaxis
    counts.set_major_locator(library.ticker.MaxNLocator(integer=True, nbins=6))
    at = list(range(len(panel.labels)))
    if panel.is_by_time:
        _draw_columns(panel, axis, at)
    else:
        [numbers] = panel.series.values()
        axis.bar_label(axis.barh(at, numbers), padding=3)
        axis.set_yticks(at, [_clean(label) for label in panel.labels])
        axis.invert_yaxis()  # the first is the topmost
    if len(panel.series) > 1:
        axis.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _draw_columns(panel: Panel, axis: Any, at: Sequence[int]) -> None:
    below = [0] * len(at)
    for name, numbers in panel.series.items():
        axis.bar(at, numbers, bottom=below, width=0.9, label=_clean(name))
        below = [sum(pair) for pair in zip(below, numbers, strict=True)]
    step = -(-len(at) // _TIMES_MAX) or 1
    axis.set_xticks(at[::step], [_clean(label) for label in panel.labels[::step]])
    axis.tick_params(axis="x", labelrotation=30)
    axis.set_ylim(0, max(below, default=0) * 1.05 or 1)


def _clean(text: str, width: int = _LABEL_WIDTH) -> str:
    """Return a text in one line of so many columns at most, of characters that XML allows."""
    return cut(printable(" ".join(text.split())), width)
