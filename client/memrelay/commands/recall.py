"""The commands that search: recall, ask.

It does not own exit codes (`cli.py`). It imports what reading needs and no more: an agent may start
a process for every recall.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from datetime import timedelta
from operator import ne
from typing import Any

from memrelay.commands.entries import one_entry, render_text, tell_nothing_found
from memrelay.commands.parsers import (
    Adder,
    Parser,
    alias,
    number,
    number_of,
    pair,
    pairs,
    public_key,
    share,
    tags,
    whole,
)
from memrelay.commands.shell import Shell, text_of
from memrelay.commands.streams import warn
from memrelay.commands.tables import Column, display_ids
from memrelay.commands.times import parse_bound, parse_past
from memrelay.errors import ConfigError
from memrelay.models import KINDS, MODES, FurtherLooks, Memory, Reply, relevance_percent
from memrelay.operations.reads import MIN_RELEVANCE, Reads
from memrelay.plurals import format_count

_SEARCH = "how to search"
_ORDER = "what counts beside the query"


def register(add: Adder) -> None:
    """Add the commands that search."""
    _add_recall(add("recall", recall, namespace=False))
    _add_ask(add("ask", ask, namespace=False))


def _add_recall(parser: Parser) -> None:
    parser.add_argument("query", nargs="*", help="the query (else standard input)")
    parser.add_argument(
        "--limit", type=whole(1, 100), default=10, metavar="N", help="1 to 100 (10)"
    )
    _add_narrowing(parser)
    parser.add_argument("--source", help="only memories of this source")
    parser.add_argument(
        "--speaker", metavar="NAME", help="only what this person said; or user, or assistant"
    )
    parser.add_argument(
        "--writer",
        action="append",
        type=public_key,
        metavar="KEY",
        help="only by this public key; repeatable",
    )
    parser.add_argument(
        "--metadata", action="append", type=pair, metavar="KEY=VALUE", help="repeatable: all match"
    )
    parser.add_argument(
        "--min-relevance",
        type=share,
        default=MIN_RELEVANCE,
        metavar="SHARE",
        help="only as near in meaning or words: 0%% to 100%%, or 0 to 1 (30%%)",
    )
    parser.add_argument(
        "--max-tokens",
        type=whole(1, 100_000),
        metavar="N",
        help="of all texts together, 1 to 100000 (no bound)",
    )
    _add_deep(parser)
    parser.add_argument(
        "--explain",
        action="store_true",
        help="show why: meaning, words, age …",
    )
    _add_search(parser)
    _add_order(parser)
    parser.put_aside(_SEARCH, _ORDER, rest="show how to search and what counts, too, and exit")


def _add_ask(parser: ArgumentParser) -> None:
    parser.add_argument("question", nargs="*", help="the question (else standard input)")
    parser.add_argument(
        "--limit",
        type=whole(1, 100),
        default=5,
        metavar="N",
        help="memories to consult, 1 to 100 (5)",
    )
    _add_narrowing(parser)
    _add_deep(parser)


def _add_deep(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--deep",
        action="store_true",
        help="let the relayer's language model plan up to four further looks",
    )


def _add_narrowing(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--namespace",
        action="append",
        metavar="NAME",
        help="instead of the profile's; repeatable, up to 16",
    )
    parser.add_argument("--kind", action="append", choices=KINDS, help="only these; repeatable")
    parser.add_argument(
        "--tag", action="extend", type=tags, metavar="TAG", help="a,b or repeated: all match"
    )
    parser.add_argument(
        "--after", "--since", type=parse_bound, metavar="TIME", help="at or after: 7d, 2026-05-04"
    )
    parser.add_argument(
        "--before", "--until", type=parse_bound, metavar="TIME", help="before: yesterday, 30d"
    )
    parser.add_argument(
        "--as-of", type=parse_past, metavar="TIME", help='what was known then: "3 days ago"'
    )


def _add_search(parser: ArgumentParser) -> None:
    group = parser.add_argument_group(_SEARCH)
    group.add_argument(
        "--mode",
        choices=MODES,
        help="words and meaning (hybrid), one of them, or meaning where words find too little",
    )
    group.add_argument(
        "--min-primary",
        type=whole(0, 100),
        metavar="N",
        help="for keyword_first: with fewer found by words, also by meaning; 0 to 100 (2)",
    )
    group.add_argument(
        "--vector-weight",
        type=number(0, 100),
        metavar="X",
        help="of meaning, 0 to 100, instead of the usual",
    )
    group.add_argument(
        "--text-weight",
        type=number(0, 100),
        metavar="X",
        help="of words, 0 to 100; both or neither",
    )
    group.add_argument("--goal", metavar="TEXT", help="what you are about to do: a second query")
    group.add_argument(
        "--alias",
        action="append",
        type=alias,
        metavar="WORD=OTHER",
        help="look for OTHER, too, where the query says WORD; repeatable",
    )


def _add_order(parser: ArgumentParser) -> None:
    group = parser.add_argument_group(_ORDER)
    group.add_argument(
        "--recency", type=number(0, 100), metavar="X", help="weight of age, 0 to 100 (0)"
    )
    group.add_argument(
        "--half-life",
        type=number_of(timedelta(days=1), 0, 36_500, above=True),
        metavar="SPAN",
        help="after which age counts half: days, or 2w (30d)",
    )
    group.add_argument(
        "--importance", type=number(0, 100), metavar="X", help="weight of importance, 0 to 100 (0)"
    )


def recall(shell: Shell) -> None:
    """Show the memories that fit a query."""
    args = shell.args
    with shell.connection() as connection:
        reads = Reads(connection.session)
        operation = reads.recall(
            text_of(args.query),
            limit=args.limit,
            mode=args.mode,
            min_primary_results=args.min_primary,
            vector_weight=args.vector_weight,
            text_weight=args.text_weight,
            goal=args.goal,
            aliases=_aliases(args.alias or ()),
            source=args.source,
            speaker=args.speaker,
            metadata=pairs("--metadata", args.metadata),
            writers=args.writer,
            min_relevance=args.min_relevance,
            scoring_weights=_weights(args),
            max_tokens=args.max_tokens,
            deep=args.deep or None,
            explain=args.explain or None,
            **_build_filters(args),
        )
        found = connection.run(operation)
        if not (found.results or found.left_out or found.dropped_count):
            tell_nothing_found(
                shell, args.namespace or (), lambda: connection.run(reads.namespaces())
            )
    if args.explain:
        is_deep = found.deep is not None
        columns = (*_EXPLAINED, _LOOK) if is_deep else _EXPLAINED
        explain = _explain_look if is_deep else _explain
        shell.show_table(found.to_json(), columns, [*map(explain, found.results)])
    else:
        ids = display_ids([memory.id for memory in found.results])
        shell.show(found.to_json(), (_line(memory, ids[memory.id]) for memory in found.results))
    if (
        args.explain
        and not args.json
        and (told := _explain_order(found.results, is_weighed=bool(_weights(args))))
    ):
        warn(told)
    if found.deep is not None:
        _tell_looks(found.deep)
    if found.left_out:
        warn(f"{found.left_out} more did not fit into {args.max_tokens} tokens.")
    if found.dropped_count:
        warn(f"{found.dropped_count} more could not be opened.")
    if found.degraded:
        warn("Some memories could be searched by words only, or not at all yet.")
    if args.explain and found.estimated:
        warn("Distances of memories that are not shown were estimated.")


def _build_filters(args: Namespace) -> dict[str, Any]:
    return {
        "namespaces": args.namespace,
        "kinds": args.kind,
        "tags": args.tag,
        "after": args.after,
        "before": args.before,
        "as_of": args.as_of,
    }


def _aliases(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    aliases: dict[str, list[str]] = {}
    for word, other in pairs:
        aliases.setdefault(word, []).append(other)
    return aliases


def _weights(args: Namespace) -> dict[str, float] | None:
    if args.half_life is not None and args.recency is None:
        raise ConfigError("--half-life is that of --recency: give a weight as well.")
    given = {
        "recency": args.recency,
        "recency_half_life_days": args.half_life,
        "importance": args.importance,
    }
    return {name: value for name, value in given.items() if value is not None} or None


_EXPLAINED = (
    Column("ID", is_id=True),
    Column("RELEVANT"),
    Column("TEXT", is_text=True),
    Column("MEANING", rank=1),
    Column("WORDS", rank=1),
    Column("MATCHED", rank=2),
    Column("SCORE"),
    Column("MADE OF", rank=3),
)


_LOOK = Column("LOOK", rank=1)


def _explain_look(memory: Memory) -> Sequence[str]:
    """Return the same row, and the number of the look; the query itself has none."""
    look = memory.explain.look if memory.explain else None
    return (*_explain(memory), str(look or "-"))


def _tell_looks(deep: FurtherLooks) -> None:
    """Tell what was looked for, where it was asked to be explained, and what is missing of it."""
    for place, text in enumerate(deep.texts or (), start=1):
        warn(f"Look {place}: {text}")
    if deep.shortfall is not None:
        warn(deep.shortfall)


def _explain(memory: Memory) -> Sequence[str]:
    """Return the row that says why a memory was found, and what its place is made of."""
    near = "" if memory.distance is None else f"{relevance_percent(memory.distance)}%"
    score = f"{memory.score or 0:.2f}"
    why = memory.explain
    if why is None:  # of an older relayer
        return (memory.id, near, render_text(memory), "", "", "", score, "")
    meaning = "not yet" if why.cosine is None else f"{max(0.0, why.cosine):.0%}"
    parts = " + ".join(f"{name} {part:.2f}" for name, part in why.parts.items() if part)
    return (
        memory.id,
        near,
        render_text(memory),
        meaning,
        f"{why.keyword:.0%}",
        ", ".join(why.matched) or "none",
        score,
        parts,
    )


def _explain_order(results: Sequence[Memory], *, is_weighed: bool) -> str:
    """Return what age and importance did to the order; nothing of an older relayer's answer."""
    explained = [(memory.score or 0, memory.explain.parts) for memory in results if memory.explain]
    if not explained:
        return ""
    added = {
        word: [parts.get(name, 0.0) for _, parts in explained]
        for word, name in (("age", "recency"), ("importance", "importance"))
    }
    counted = {word: parts for word, parts in added.items() if any(parts)}
    if not counted and is_weighed:
        return "Age and importance added nothing to these scores."
    if not counted:
        return "Age and importance did not count; --recency X and --importance X make them."
    scores = [score for score, _ in explained]
    without = [
        score - age - importance
        for score, age, importance in zip(scores, added["age"], added["importance"], strict=True)
    ]
    added_most = " and ".join(f"{word} up to {max(of):.2f}" for word, of in counted.items())
    moved = sum(map(ne, _order_of(scores), _order_of(without)))
    places = f"{moved} of {format_count(len(scores), 'place')}"
    return (
        f"To these scores, {added_most} was added. Without it, {places} would be another's,"
        " and other memories might be here."
    )


def _order_of(scores: Sequence[float]) -> Sequence[int]:
    """Return the places of scores, the greatest first."""
    return sorted(range(len(scores)), key=scores.__getitem__, reverse=True)


def _line(memory: Memory, shown_id: str) -> str:
    near = "" if memory.distance is None else f"{relevance_percent(memory.distance):3}%  "
    return f"{near}{shown_id}  {one_entry(render_text(memory))}"


def ask(shell: Shell) -> None:
    """Answer a question from memories."""
    args = shell.args
    with shell.connection() as connection:
        question = Reads(connection.session).ask(
            text_of(args.question),
            limit=args.limit,
            deep=args.deep or None,
            **_build_filters(args),
        )
        reply = connection.run(question)
    shell.show(reply.to_json(), [reply.answer, *_list_cited(reply)])
    if reply.deep is not None:
        _tell_looks(reply.deep)


def _list_cited(reply: Reply) -> list[str]:
    """Return a line for each memory that an answer cites, by the number that it has there."""
    ids = display_ids([memory.id for memory in reply.memories])
    return [
        f"[{number}] {ids[memory.id]}  {one_entry(render_text(memory))}"
        for number, memory in enumerate(reply.memories, start=1)
        if memory.id in reply.cited
    ]
