"""The command that shows memories by day, week or month.

It does not own the filters, which are those of `list` (`lists.py`).

A memory is of the day of its event time; without one, of the day on which it was stored.
"""

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import groupby

from memrelay.commands.entries import render_text, tell_nothing_found
from memrelay.commands.lists import add_filters, filters_of
from memrelay.commands.newest import read_newest
from memrelay.commands.parsers import Adder, whole
from memrelay.commands.pictures import Panel, add_svg_option, find_library, save_picture
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.commands.tables import cut, display_ids, one_line, terminal_width
from memrelay.local_time import to_local, when
from memrelay.models import Memory
from memrelay.outcomes import marks_of
from memrelay.plurals import format_count


def register(add: Adder) -> None:
    """Add the command that shows memories by time."""
    _add_timeline(add("timeline", timeline))


def _add_timeline(parser: ArgumentParser) -> None:
    parser.add_argument("--by", choices=_PERIODS, default="day", help="how to part them (day)")
    parser.add_argument(
        "--oldest-first", action="store_true", help="from the earliest on (the latest first)"
    )
    parser.add_argument(
        "--limit",
        type=whole(1, 10_000),
        default=50,
        metavar="N",
        help="of those that were stored last, 1 to 10000 (50)",
    )
    add_svg_option(parser)
    add_filters(parser)


def timeline(shell: Shell) -> None:
    """Show memories under the day, week or month they are of.

    That is the one of a memory's event time. Without one, it is that on which it was stored. Days
    are those of this machine's zone, and weeks begin on Monday.
    """
    args = shell.args
    if args.svg:
        find_library()  # before anything is read
    with shell.client() as client:
        newest = read_newest(client, [args.namespace], args.limit, **filters_of(args))
        if not newest.memories:
            tell_nothing_found(shell, [args.namespace] if args.namespace else (), client.namespaces)
    memories = sorted(newest.memories, key=_time, reverse=not args.oldest_first)
    periods = [
        (name, list(found))
        for name, found in groupby(memories, key=lambda memory: _PERIODS[args.by](_day(memory)))
    ]
    value = {
        "by": args.by,
        "periods": [
            {"period": name, "memories": [memory.to_json() for memory in found]}
            for name, found in periods
        ],
        "truncated": newest.truncated,
    }
    if args.svg:
        shown = f"{format_count(len(memories), 'memory')} by {args.by}"
        save_picture(args.svg, shown, [draw_periods(periods, args.by)])
    shell.show(value, _lines(periods, args.by))
    if newest.truncated and not args.json:
        shown = format_count(len(memories), "memory")
        warn(f"Only the last {shown} stored; --limit, --after or --before show others.")


def _time(memory: Memory) -> datetime:
    return memory.event_time or memory.created_at or datetime.min.replace(tzinfo=UTC)


def _day(memory: Memory) -> date:
    return to_local(_time(memory)).date()


def _name_week(day: date) -> str:
    year, week, _ = day.isocalendar()
    return f"{year:04}-W{week:02}"


_PERIODS: Mapping[str, Callable[[date], str]] = {
    "day": date.isoformat,
    "week": _name_week,
    "month": lambda day: day.isoformat()[:7],
}
_DAYS = {"day": 1, "week": 7, "month": 31}
_COLUMNS_MAX = 400  # of a picture, with those of periods without a memory


def draw_periods(periods: Sequence[tuple[str, Sequence[Memory]]], by: str) -> Panel:
    """Return the chart of these periods in order of time, a series for each kind; no texts.

    Periods without memories have a place, unless there are too many of them.
    """
    counts = {name: Counter(memory.kind or "none" for memory in found) for name, found in periods}
    kinds = sorted({kind for found in counts.values() for kind in found})
    days = sorted(_day(found[0]) for _, found in periods)
    names = sorted(counts)
    title = f"Memories by {by}"
    if days and (days[-1] - days[0]).days <= _COLUMNS_MAX * _DAYS[by]:
        every = (days[0] + timedelta(days=at) for at in range((days[-1] - days[0]).days + 1))
        names = list(dict.fromkeys(map(_PERIODS[by], every)))
    elif days:
        title += f" (a {by} without one is left out)"
    nothing = Counter[str]()
    series = {kind: [counts.get(name, nothing)[kind] for name in names] for kind in kinds}
    return Panel(title, names, series, is_by_time=True)


def _lines(periods: Sequence[tuple[str, list[Memory]]], by: str) -> Iterator[str]:
    """Yield periods with their memories, cut to the terminal; to a pipe, a line for each memory."""
    width = terminal_width()
    ids = display_ids([memory.id for _, found in periods for memory in found])
    for at, (name, found) in enumerate(periods):
        if width is not None:
            if at:
                yield ""
            day = _day(found[0])
            yield cut(f"{_describe(name, day, by)}  {format_count(len(found), 'memory')}", width)
        for memory in found:
            text = one_line(render_text(memory))
            marks = ", ".join(marks_of(memory))
            if width is None:
                yield f"{name}\t{when(_time(memory))}\t{memory.id}\t{text}\t{marks}"
            else:
                moment = to_local(_time(memory))
                clock = f"{moment:%H:%M}" if by == "day" else f"{moment:%m-%d %H:%M}"
                noted = f"({marks}) {text}" if marks else text
                yield cut(f"  {clock}  {ids[memory.id]}  {noted}", width)


def _describe(name: str, day: date, by: str) -> str:
    if by == "day":
        return f"{name} {day:%A}"
    if by == "month":
        return name
    monday = day - timedelta(days=day.weekday())
    return f"{name} from {monday.isoformat()}"
