"""The command that counts memories: by day, by writer, by kind and by namespace.

It does not own the account's limits (`lists.py`).

The relayer counts all of them. What recalls used, it knows where the account counts recalls.
"""

from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from textwrap import wrap
from typing import Any

from memrelay.commands.charts import draw_bar, draw_sparkline
from memrelay.commands.entries import HOW_TO_COUNT, render_text, tell_nothing_found
from memrelay.commands.parsers import Adder, whole
from memrelay.commands.pictures import Panel, add_svg_option, find_library, save_picture
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.commands.tables import Column, cut, format_table, one_line, terminal_width
from memrelay.errors import NotFound, NotGranted, ServerError
from memrelay.local_time import to_local
from memrelay.models import Counts, NamespaceInfo
from memrelay.operations.reads import drop_unset
from memrelay.plurals import format_count
from memrelay.sealed.keys import mask_key, normalise_namespace
from memrelay.sync_client import SyncMemoryClient

COUNTED_MAX = 200_000  # as the relayer says
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
        type=whole(1, COUNTED_MAX),
        metavar="N",
        help=f"the newest memories to count, 1 to {COUNTED_MAX} (that many)",
    )
    add_svg_option(parser)


def stats(shell: Shell) -> None:
    """Count memories by day, writer, kind and namespace.

    All namespaces that this key may read are counted, or the one of --namespace. A day is that of
    this machine's zone on which a memory was stored. What recalls used is shown where the account
    has them counted (memrelay settings).
    """
    args = shell.args
    if args.svg:
        find_library()  # before anything is counted
    today = datetime.now().astimezone().date()
    bounds = [_begin(today - timedelta(days=ago)) for ago in reversed(range(args.days))]
    names = None if args.namespace is None else [args.namespace]
    with shell.client() as client:
        infos = _choose(client.namespaces(), args.namespace)
        counts = client.counts(bounds, namespaces=names, limit=args.limit)
        if not infos:
            tell_nothing_found(shell, names or (), tuple)
        value = describe_counts(infos, counts, today)
        if value["recalls"] is not None:
            for one in value["recalls"]["most"]:
                one["text"] = _find_text(client, one["id"], one["namespace"])
    if args.svg:
        save_picture(args.svg, _summarize(value), list(_panels(value)))
    shell.show(value, _lines(value))
    if value["truncated"] and not args.json:
        counted = format_count(value["counted"], "memory")
        warn(f"By day, writer and kind, the newest {counted} are counted; --limit N counts others.")


def _begin(day: date) -> datetime:
    """Return when a day begins in this machine's zone."""
    return datetime.combine(day, time.min).astimezone()


def _choose(infos: Iterable[NamespaceInfo], name: str | None) -> list[NamespaceInfo]:
    return [info for info in infos if name is None or info.name == normalise_namespace(name)]


def _count_active(info: NamespaceInfo) -> int:
    """Return how many memories recalls look at: the relayer counts those out of recall, too."""
    aside = info.superseded_count + info.pending_count + info.rejected_count
    return max(0, info.memory_count - aside)


def _find_text(client: SyncMemoryClient, memory_id: str, namespace: str) -> str | None:
    """Return a memory's text; None where it is gone by now, or not to be opened."""
    try:
        return render_text(client.get(memory_id, namespace=namespace))
    except (NotFound, NotGranted, ServerError):
        return None


def describe_counts(infos: Sequence[NamespaceInfo], counts: Counts, today: date) -> dict[str, Any]:
    """Return the counts as `--json` has them; their periods are days, and the last one is today.

    Days are left out of which not all memories were counted, but today.
    """
    first = today - timedelta(days=len(counts.periods) - 1)
    by_day = [(first + timedelta(days=at), number) for at, number in enumerate(counts.periods)]
    since = counts.counted_since
    whole = first if since is None else min(today, to_local(since).date())
    return {
        "active_count": sum(map(_count_active, infos)),
        "memory_count": sum(info.memory_count for info in infos),
        "counted": counts.memory_count,
        "truncated": since is not None,
        "counted_since": None if since is None else since.isoformat(),
        "days": [
            {"day": day.isoformat(), "memory_count": number}
            for day, number in by_day
            if day >= whole
        ],
        "writers": [
            {
                "public_key": one.writer,
                "name": one.writer_label or mask_key(one.writer),
                "memory_count": one.memory_count,
                **drop_unset({"never_recalled_count": one.never_recalled_count}),
            }
            for one in counts.writers
        ],
        "kinds": [one.to_json() for one in counts.kinds],
        "namespaces": [
            {
                "name": info.name,
                "active_count": _count_active(info),
                "memory_count": info.memory_count,
            }
            for info in sorted(infos, key=_count_active, reverse=True)
        ],
        "repeated_count": counts.repeated_count,
        "recalls": None if counts.recalls is None else counts.recalls.to_json(),
    }


_GROUPS = (
    ("days", "day", "memory_count", "DAY"),
    ("writers", "name", "memory_count", "BY"),
    ("kinds", "kind", "memory_count", "KIND"),
    ("namespaces", "name", "active_count", "NAMESPACE"),
)


_NEVER_RECALLED = (("writers", "name", "writer"), ("kinds", "kind", "kind"))


def _lines(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield charts that fit the terminal; to a pipe, a line for each count."""
    width = terminal_width()
    if width is not None:
        yield from _draw(value, width)
        return
    for group, name, number, _ in _GROUPS:
        for one in value[group]:
            yield f"{group}\t{one_line(one[name] or '')}\t{one[number]}"
    if value["recalls"] is None:
        return
    for one in value["recalls"]["most"]:
        yield f"recalls\t{one['id']}\t{one['recall_count']}"
    for group, name, _ in _NEVER_RECALLED:
        for one in value[group]:
            never = one["never_recalled_count"]
            yield f"{group}_never_recalled\t{one_line(one[name] or '')}\t{never}"


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
    if value["recalls"] is None:
        return
    for group, name, noun in _NEVER_RECALLED:
        entries = value[group][:_ROWS_MAX]
        if entries:
            title = f"Never recalled since {value['recalls']['since']}, by {noun}"
            never = [one["never_recalled_count"] for one in entries]
            yield Panel(title, [one[name] or "none" for one in entries], {"memories": never})


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
        yield from _draw_group(heading, value[group], name, number)
    yield ""
    yield from wrap(f"Stored more than once, and kept once: {value['repeated_count']}.", width)
    if value["recalls"] is None:
        yield from wrap(f"Which memories were recalled is not counted. {HOW_TO_COUNT}", width)
    else:
        yield from _draw_recalls(value["recalls"], value["counted"], width)


def _draw_group(
    heading: str, entries: Sequence[Mapping[str, Any]], name: str, number: str
) -> Iterator[str]:
    total = sum(one[number] for one in entries) or 1
    rows = [
        (
            one[name] or "none",
            str(one[number]),
            f"{one[number] / total:.0%}",
            draw_bar(one[number], total, _BAR_WIDTH),
            str(one.get("never_recalled_count", "")),
        )
        for one in entries[:_ROWS_MAX]
    ]
    columns = (
        Column(heading, is_text=True),
        Column("MEMORIES"),
        Column("SHARE", rank=2),
        Column("", rank=3),
        Column("NEVER RECALLED", rank=1),
    )
    yield from format_table(columns, rows)
    if len(entries) > _ROWS_MAX:
        yield f"and {len(entries) - _ROWS_MAX} more"


def _draw_recalls(recalls: Mapping[str, Any], counted: int, width: int) -> Iterator[str]:
    if recalls["most"]:
        yield ""
        yield cut(f"Recalled most since {recalls['since']}", width)
        rows = [
            (
                str(one["recall_count"]),
                one["id"],
                "(cannot be opened)" if one["text"] is None else one["text"],
                one["last_recalled_on"],
                one["namespace"],
            )
            for one in recalls["most"]
        ]
        yield from format_table(_RECALLED_COLUMNS, rows)
    yield ""
    never = recalls["never_recalled_count"]
    told = f"Never recalled since {recalls['since']}: {never} of {counted}."
    told += " They are in: memrelay list --never-recalled" if never else ""
    yield from wrap(told, width, break_on_hyphens=False)


_RECALLED_COLUMNS = (
    Column("TIMES"),
    Column("ID", rank=3, is_id=True),
    Column("TEXT", is_text=True),
    Column("LAST", rank=1),
    Column("NAMESPACE", rank=2),
)
