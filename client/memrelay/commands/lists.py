"""The commands that show what there is: list, get, history, namespaces, usage.

It does not own recall (`memories.py`), or the commands that change something (`corrections.py`,
`deletion.py`).
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from memrelay.commands.differences import list_changed_fields, word_diff
from memrelay.commands.entries import HOW_TO_COUNT, render_text, tell_nothing_found, writer
from memrelay.commands.ids import ID_HELP, find_id
from memrelay.commands.parsers import Adder, add_page, public_key, tags, whole
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.commands.tables import Column, terminal_width
from memrelay.commands.times import parse_bound, parse_span
from memrelay.errors import ConfigError, ServerError
from memrelay.extraction import failures, source_of_facts
from memrelay.local_time import when
from memrelay.models import KINDS, Extraction, Memory, NamespaceInfo, Usage
from memrelay.operations.deletion import INDEXES
from memrelay.operations.lists import Filters
from memrelay.outcomes import STATES, History, marks_of
from memrelay.plurals import format_count, format_size


def register(add: Adder) -> None:
    """Add the commands that show what there is."""
    _add_list(add("list", list_memories))
    _add_get(add("get", get))
    add("history", history).add_argument("id", help=ID_HELP)
    _add_namespaces(add("namespaces", namespaces, namespace=False))
    add("usage", usage, namespace=False)


def _add_list(parser: ArgumentParser) -> None:
    add_page(parser)
    parser.add_argument(
        "--never-recalled", action="store_true", help="only those that no recall showed"
    )
    add_filters(parser)


def add_filters(parser: ArgumentParser) -> None:
    """Add the options that narrow what is listed, or forgotten."""
    group = parser.add_argument_group("which memories")
    group.add_argument("--kind", choices=KINDS, help="only of this kind")
    group.add_argument(
        "--tag", action="extend", type=tags, metavar="TAG", help="a,b or repeated: all match"
    )
    group.add_argument("--source", help="only of this source")
    group.add_argument("--writer", type=public_key, metavar="KEY", help="only by this public key")
    group.add_argument(
        "--after", "--since", type=parse_bound, metavar="TIME", help="at or after: 7d, 2026-05-04"
    )
    group.add_argument(
        "--before", "--until", type=parse_bound, metavar="TIME", help="before: yesterday, 30d"
    )
    group.add_argument("--state", choices=STATES, help="those in recall unless said (active)")
    group.add_argument("--pinned", action="store_true", default=None, help="only pinned ones")


def filters_of(args: Namespace) -> Filters:
    """Return the filters that were given."""
    return {
        "kind": args.kind,
        "tags": args.tag,
        "source": args.source,
        "writer": args.writer,
        "after": args.after,
        "before": args.before,
        "state": args.state,
        "pinned": args.pinned,
    }


def _add_get(parser: ArgumentParser) -> None:
    parser.add_argument("id", help=ID_HELP)
    parser.add_argument(
        "--revision", type=whole(1, 100), metavar="N", help="an earlier one (the newest)"
    )
    parser.add_argument(
        "--open", action="store_true", help="open its stored bytes here, and believe nothing else"
    )


def _add_namespaces(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="the one to change")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--ttl",
        type=parse_span,
        metavar="SPAN",
        help="erase its memories so long after they were stored: 12h, 90d; not pinned ones",
    )
    choice.add_argument(
        "--no-ttl", action="store_true", help="let nothing in it expire, what is there included"
    )
    choice.add_argument(
        "--index",
        choices=INDEXES,
        help="sealed: nothing that finds its memories is readable on the relayer's disk",
    )


def list_memories(shell: Shell) -> None:
    """Show memories and who wrote them, newest first."""
    args = shell.args
    with shell.client() as client:
        try:
            page = client.list(
                limit=args.limit,
                cursor=args.cursor,
                never_recalled=args.never_recalled,
                **filters_of(args),
            )
        except ServerError as error:
            if error.code == "recalls.not_counted":
                raise ConfigError(f"{error} {HOW_TO_COUNT}") from None
            raise
        shell.show_table(page.to_json(), _MEMORY_COLUMNS, [*map(_memory_row, page.memories)])
        if page.unrestored:
            warn("The relayer lost its database, and not all memories are back: ask again later.")
        elif not (page.memories or page.next_cursor):
            tell_nothing_found(shell, [args.namespace] if args.namespace else (), client.namespaces)
    if page.next_cursor and not args.json:
        warn(f"There are more: --cursor {page.next_cursor}")


_MEMORY_COLUMNS = (
    Column("ID", is_id=True),
    Column("TEXT", is_text=True),
    Column("WRITTEN", rank=2),
    Column("KIND", rank=1),
    Column("BY", rank=3),
    Column("NAMESPACE", rank=5),
    Column("MARKS", rank=4),
)


def _memory_row(memory: Memory) -> Sequence[str]:
    return (
        memory.id,
        render_text(memory),
        when(memory.created_at),
        memory.kind or "",
        writer(memory),
        memory.namespace,
        ", ".join(marks_of(memory)),
    )


def get(shell: Shell) -> None:
    """Show one memory."""
    args = shell.args
    with shell.client() as client:
        read = client.opened if args.open else client.get
        wanted = find_id(client, args.id)
        memory = read(wanted, namespace=args.namespace, revision=args.revision)
    lines = [render_text(memory)]
    if memory.recall_count is not None and terminal_width() is not None:
        lines += ["", _describe_recalls(memory.recall_count, memory.last_recalled_on)]
    shell.show(memory.to_json(), lines)


def _describe_recalls(count: int, last_on: str | None) -> str:
    if not count:
        return "Never recalled since recalls are counted."
    return f"Recalled {format_count(count, 'time')}, last on {last_on} (UTC)."


def history(shell: Shell) -> None:
    """Show all revisions of a memory, and what was changed.

    The newest comes first, with who wrote it.
    """
    args = shell.args
    with shell.client() as client:
        found = client.history(find_id(client, args.id), namespace=args.namespace)
    shell.show(found.to_json(), _history_lines(found))


def _history_lines(found: History) -> Iterator[str]:
    for newer, older in pairwise([*found.revisions, None]):
        assert newer is not None
        notes = ", ".join(filter(None, [writer(newer), *marks_of(replace(newer, revision=None))]))
        yield f"revision {newer.revision}  {when(newer.updated_at or newer.created_at)}  {notes}"
        text = (
            render_text(newer)
            if older is None
            else word_diff(render_text(older), render_text(newer))
        )
        yield from (f"    {line}" for line in text.split("\n"))
        if older is not None:
            yield from (f"    {line}" for line in list_changed_fields(older, newer))
    for link in found.links:
        yield f"{link.relation}  {link.other_id if link.memory_id == found.id else link.memory_id}"


def namespaces(shell: Shell) -> None:
    """Show the namespaces, or change how one keeps and is searched.

    Shown are their size, their last write, how long they keep and what finds their memories.
    """
    args = shell.args
    change = args.ttl is not None or args.no_ttl or args.index is not None
    if change != bool(args.name):
        raise ConfigError("Give the namespace to change, and --ttl SPAN, --no-ttl or --index.")
    with shell.client() as client:
        if args.index is not None:
            chosen = client.set_index(args.name, args.index)
            return shell.show(chosen.to_json(), [f"{args.name}: {_describe_index(chosen)}"])
        if change:
            ttl_s = None if args.ttl is None else int(args.ttl.total_seconds())
            changed = client.set_ttl(args.name, ttl_s)
            return shell.show(changed.to_json(), [f"{args.name}: {_describe_retention(changed)}"])
        found = client.namespaces()
    value = {"namespaces": [one.to_json() for one in found]}
    shell.show_table(value, _NAMESPACE_COLUMNS, [*map(_namespace_row, found)])


_NAMESPACE_COLUMNS = (
    Column("NAMESPACE", is_text=True),
    Column("MEMORIES"),
    Column("TEXTS", rank=2),
    Column("INDEX", rank=3),
    Column("LAST WRITTEN", rank=1),
    Column("KEEPS", rank=1),
    Column("FOUND BY", rank=2),
)


def _namespace_row(info: NamespaceInfo) -> Sequence[str]:
    return (
        info.name,
        str(info.memory_count),
        format_count(info.storage_bytes, "byte"),
        format_count(info.index_bytes, "byte"),
        when(info.updated_at),
        "for good" if info.ttl_s is None else _span(info.ttl_s),
        f"{info.index} (moving)" if info.index_moves else info.index,
    )


def _sizes(used: Usage) -> str:
    texts, index = format_size(used.storage_bytes), format_size(used.index_bytes)
    return f"{texts} of texts, {index} of their index"


def _describe_retention(info: NamespaceInfo) -> str:
    if info.ttl_s is None:
        return "its memories are kept"
    return f"its memories are erased {_span(info.ttl_s)} after they were stored"


def _describe_index(info: NamespaceInfo) -> str:
    moves = " Its memories are moved in the background, while its key is lent."
    return f"its index is {info.index}.{moves if info.index_moves else ''}"


def _span(seconds: int) -> str:
    """Return a span of time in the largest unit of which it is a whole number."""
    units = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
    noun = next(noun for noun, unit_s in units.items() if seconds % unit_s == 0)
    return format_count(seconds // units[noun], noun)


def usage(shell: Shell) -> None:
    """Show what the account uses of what it may use."""
    with shell.client() as client:
        used = client.usage()
    bound = f", of {format_size(used.storage_bytes_max)} together" if used.storage_bytes_max else ""
    lines = [
        format_count(used.memory_count, "memory"),
        f"{_sizes(used)}{bound}",
        format_count(used.revision_count, "earlier revision"),
        f"{used.superseded_count} superseded",
        f"{used.pending_count} waiting for review",
        f"{used.rejected_count} rejected",
    ]
    if used.grants_max is not None:
        done = format_count(used.grant_count, "time")
        lines.append(f"keys were granted or revoked {done}, of {used.grants_max} at most")
    if used.extraction is not None:
        lines += _extraction_lines(used.extraction)
    shell.show(used.to_json(), lines)


def _extraction_lines(extraction: Extraction) -> Iterator[str]:
    given, without = extraction.with_facts, extraction.without_facts
    if given is not None and without is not None:
        turns = format_count(given + without, "turn")
        yield f"{turns} analyzed: {given} gave facts, {without} gave none"
    if extraction.waiting and not extraction.failed:
        yield f"{format_count(extraction.waiting, 'turn')} waiting for facts"
    yield source_of_facts(extraction)
    if (told := failures(extraction)) is not None:
        yield told
