"""The command that counts memories: by day, by writer, by kind and by namespace.

It does not own the account's limits (`listing.py`).

- How many a namespace has, the relayer counts. The rest is counted here, of the newest memories.
- A relayer keeps nothing of recalls, so nothing is said of what they used.
"""

import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from textwrap import wrap
from typing import Any

from memrelay.commands.charts import draw_bar, draw_sparkline
from memrelay.commands.entries import tell_nothing_found, writer
from memrelay.commands.newest import Newest, read_newest, to_local
from memrelay.commands.parsers import Adder, whole
from memrelay.commands.pictures import Panel, add_svg_option, find_library, save_picture
from memrelay.commands.progress import ProgressLine
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.commands.tables import Column, cut, format_table, one_line, terminal_width
from memrelay.models import Memory, NamespaceInfo
from memrelay.plurals import format_count
from memrelay.sealed.keys import normalise_namespace

NAMESPACES_MAX = 100  # each is a request at least
_BAR_WIDTH = 20
_ROWS_MAX = 12  # of a table; a pipe and --json get all


def register(add: Adder) -> None:
    """Add the command that counts memories."""
    _add_stats(add("stats", stats))


def _add_stats(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--days",
        type=whole(1, 366),
        default=30,
        metavar="N",
        help="how many to show, 1 to 366 (30)",
    )
    parser.add_argument(
        "--limit",
        type=whole(1, 1_000_000),
        default=2_000,
        metavar="N",
        help="the newest memories to read and count, 1 to 1000000 (2000)",
    )
    add_svg_option(parser)


def stats(shell: Shell) -> None:
    """Count memories by day, writer, kind and namespace.

    All namespaces that this key may read are counted, or the one of --namespace. The relayer says
    how many memories each has. The other counts are of the newest memories, up to --limit. A day is
    that of this machine's zone on which a memory was stored. Relayers keep no record of recalls.
    """
    args = shell.args
    if args.svg:
        find_library()  # before anything is counted
    with shell.client(is_long=True) as client:
        infos = _choose(client.namespaces(), args.namespace)
        filled = [info for info in infos if info.memory_count]
        read, left_out = filled[:NAMESPACES_MAX], filled[NAMESPACES_MAX:]
        with ProgressLine(sys.stderr, "counted") as progress:
            progress.expect(min(args.limit, sum(map(_count_active, read))))
            names = [info.name for info in read]
            newest = read_newest(client, names, args.limit, progress=progress)
        if not infos:
            tell_nothing_found(shell, [args.namespace] if args.namespace else (), tuple)
    since = _find_since(newest, left_out)
    today = datetime.now().astimezone().date()
    value = count_memories(infos, newest.memories, since, today, args.days)
    if args.svg:
        save_picture(args.svg, _summarize(value), list(_panels(value)))
    shell.show(value, _lines(value))
    if args.json:
        return
    if newest.truncated:
        counted = format_count(value["counted"], "memory")
        warn(f"By day, writer and kind, the newest {counted} are counted; --limit N counts more.")
    if left_out:
        warn(
            f"By day, writer and kind, only the {len(read)} namespaces written last are counted;"
            " --namespace NAME counts another."
        )


def _find_since(newest: Newest, left_out: Sequence[NamespaceInfo]) -> datetime | None:
    """Return the time since when all memories were read; None if all were read at all."""
    bounds = [newest.memories[-1].created_at] if newest.truncated else []
    bounds += [info.updated_at for info in left_out]
    return max(filter(None, bounds), default=None)


def _choose(infos: Iterable[NamespaceInfo], name: str | None) -> list[NamespaceInfo]:
    """Return the namespaces to count, those that were written last first."""
    chosen = [info for info in infos if name is None or info.name == normalise_namespace(name)]
    written = [info for info in chosen if info.updated_at is not None]
    written.sort(key=lambda info: (info.updated_at, info.name), reverse=True)
    return written + [info for info in chosen if info.updated_at is None]


def _count_active(info: NamespaceInfo) -> int:
    """Return how many memories recalls look at: the relayer counts those out of recall, too."""
    aside = info.superseded_count + info.pending_count + info.rejected_count
    return max(0, info.memory_count - aside)


def count_memories(
    infos: Sequence[NamespaceInfo],
    memories: Sequence[Memory],
    since: datetime | None,
    today: date,
    days: int,
) -> dict[str, Any]:
    """Return the counts as `--json` has them: of memories which are all that there are `since`.

    Of so many `days` up to today, those are counted of which all memories are known.
    """
    by_day = Counter(to_local(one.created_at).date() for one in memories if one.created_at)
    first = today - timedelta(days=days - 1)
    if since is not None:
        first = min(today, max(first, to_local(since).date()))
    by_writer = Counter((memory.writer, writer(memory)) for memory in memories)
    by_kind = Counter(memory.kind for memory in memories)
    return {
        "active_count": sum(map(_count_active, infos)),
        "memory_count": sum(info.memory_count for info in infos),
        "counted": len(memories),
        "truncated": since is not None,
        "counted_since": None if since is None else since.isoformat(),
        "days": [
            {"day": day.isoformat(), "memory_count": by_day[day]}
            for day in (first + timedelta(days=at) for at in range((today - first).days + 1))
        ],
        "writers": [
            {"public_key": key, "name": name, "memory_count": number}
            for (key, name), number in by_writer.most_common()
        ],
        "kinds": [{"kind": kind, "memory_count": number} for kind, number in by_kind.most_common()],
        "namespaces": [
            {
                "name": info.name,
                "active_count": _count_active(info),
                "memory_count": info.memory_count,
            }
            for info in sorted(infos, key=_count_active, reverse=True)
        ],
        "repeated_count": sum(memory.seen_count > 1 for memory in memories),
        "recalls": None,
    }


_GROUPS = (
    ("days", "day", "memory_count", "DAY"),
    ("writers", "name", "memory_count", "BY"),
    ("kinds", "kind", "memory_count", "KIND"),
    ("namespaces", "name", "active_count", "NAMESPACE"),
)


def _lines(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield charts that fit the terminal; to a pipe, a line for each count."""
    width = terminal_width()
    if width is not None:
        yield from _draw(value, width)
        return
    for group, name, number, _ in _GROUPS:
        for one in value[group]:
            yield f"{group}\t{one_line(one[name] or '')}\t{one[number]}"


def _summarize(value: Mapping[str, Any]) -> str:
    active, every = value["active_count"], value["memory_count"]
    return f"{format_count(active, 'memory')} in recall, {every - active} out of it"


def _panels(value: Mapping[str, Any]) -> Iterator[Panel]:
    """Yield the charts of a picture: those of a terminal, with as many rows."""
    for group, name, number, _ in _GROUPS:
        counts = [(one[name] or "none", one[number]) for one in value[group]]
        is_by_time = group == "days"
        shown = counts if is_by_time else counts[:_ROWS_MAX]
        title = "Stored a day" if is_by_time else f"Memories by {group.removesuffix('s')}"
        if len(counts) > len(shown):
            title += f" ({len(counts) - len(shown)} more are not shown)"
        if shown:
            labels, numbers = zip(*shown, strict=True)
            yield Panel(title, labels, {"memories": numbers}, is_by_time)


def _draw(value: Mapping[str, Any], width: int) -> Iterator[str]:
    yield cut(_summarize(value), width)
    if not value["active_count"]:
        return
    days = value["days"][-width:]
    numbers = [day["memory_count"] for day in days]
    yield ""
    yield cut(f"Stored a day, {days[0]['day']} to {days[-1]['day']}: {max(numbers)} at most", width)
    yield draw_sparkline(numbers)
    for group, name, number, heading in _GROUPS[1:]:
        yield ""
        yield from _draw_group(
            heading, [(one[name] or "none", one[number]) for one in value[group]]
        )
    yield ""
    for line in (
        f"Stored more than once, and kept once: {value['repeated_count']}.",
        "Relayers keep no record of recalls: which memories were recalled, and which never, nobody"
        " can say.",
    ):
        yield from wrap(line, width)


def _draw_group(heading: str, counts: Sequence[tuple[str, int]]) -> Iterator[str]:
    total = sum(number for _, number in counts) or 1
    rows = [
        (name, str(number), f"{number / total:.0%}", draw_bar(number, total, _BAR_WIDTH))
        for name, number in counts[:_ROWS_MAX]
    ]
    columns = (
        Column(heading, is_text=True),
        Column("MEMORIES"),
        Column("SHARE", rank=1),
        Column("", rank=2),
    )
    yield from format_table(columns, rows)
    if len(counts) > _ROWS_MAX:
        yield f"and {len(counts) - _ROWS_MAX} more"
