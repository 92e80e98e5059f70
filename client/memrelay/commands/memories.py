"""The commands that store and search: remember, recall, analyze, ask.

It does not own exit codes (`cli.py`), lists (`listing.py`) or corrections (`correcting.py`).
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from memrelay.commands.listing import one_entry, shown, tell_nothing_found
from memrelay.commands.parsers import (
    Adder,
    alias,
    moment,
    number,
    pair,
    pairs,
    public_key,
    seconds,
    whole,
)
from memrelay.commands.shell import Shell, text_of, warn
from memrelay.counting import counted
from memrelay.errors import ConfigError
from memrelay.extraction import summary
from memrelay.importing.found import TEXT_BYTES_MAX
from memrelay.models import KINDS, MODES, Memory, secrets_in
from memrelay.operations.reading import MIN_RELEVANCE


def register(add: Adder) -> None:
    """Add the commands that store and search."""
    _add_remember(add("remember", remember))
    _add_recall(add("recall", recall, namespace=False))
    _add_analyze(add("analyze", analyze))
    _add_ask(add("ask", ask, namespace=False))


def _add_remember(parser: ArgumentParser) -> None:
    parser.add_argument("text", nargs="*", help="the text (else standard input)")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--tag", action="append", metavar="TAG", help="may be repeated")
    parser.add_argument("--source")
    parser.add_argument(
        "--event-time", type=moment, metavar="TIME", help="RFC 3339, with an offset"
    )
    parser.add_argument("--metadata", action="append", type=pair, metavar="KEY=VALUE")
    parser.add_argument("--importance", choices=("vital", "standard", "trivial"))
    parser.add_argument("--confidence", choices=("high", "medium", "low"))
    parser.add_argument(
        "--expires-at", type=moment, metavar="TIME", help="RFC 3339, with an offset"
    )
    parser.add_argument("--idempotency-key", metavar="KEY", help="store once, however often sent")
    parser.add_argument(
        "--wait",
        type=seconds,
        nargs="?",
        const=60.0,
        metavar="SECONDS",
        help="until it is found by meaning, too",
    )


def _add_recall(parser: ArgumentParser) -> None:
    parser.add_argument("query", nargs="*", help="the query (else standard input)")
    parser.add_argument(
        "--limit", type=whole(1, 100), default=10, metavar="N", help="1 to 100 (10)"
    )
    _add_narrowing(parser)
    parser.add_argument("--source", help="only memories of this source")
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
        type=number(0, 1),
        default=MIN_RELEVANCE,
        metavar="X",
        help="0 to 1 (0.3)",
    )
    parser.add_argument(
        "--max-tokens",
        type=whole(1, 100_000),
        metavar="N",
        help="of all texts together, 1 to 100000 (no bound)",
    )
    parser.add_argument("--explain", action="store_true", help="say why each one was found")
    _add_search(parser)
    _add_order(parser)


def _add_narrowing(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--namespace",
        action="append",
        metavar="NAME",
        help="instead of the profile's; repeatable, up to 16",
    )
    parser.add_argument("--kind", action="append", choices=KINDS, help="only these; repeatable")
    parser.add_argument("--tag", action="append", metavar="TAG", help="repeatable: all match")
    parser.add_argument(
        "--after", type=moment, metavar="TIME", help="at or after; RFC 3339, with an offset"
    )
    parser.add_argument(
        "--before", type=moment, metavar="TIME", help="before; RFC 3339, with an offset"
    )
    parser.add_argument(
        "--as-of", type=moment, metavar="TIME", help="what was known then; RFC 3339"
    )


def _add_search(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("how to search")
    group.add_argument(
        "--mode",
        choices=MODES,
        help="words and meaning (hybrid), one of them, or meaning only after too few",
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
    group = parser.add_argument_group("what counts beside the query")
    group.add_argument(
        "--recency", type=number(0, 100), metavar="X", help="weight of age, 0 to 100 (0)"
    )
    group.add_argument(
        "--half-life",
        type=number(0, 36_500, above=True),
        metavar="DAYS",
        help="after which age counts half (30 days)",
    )
    group.add_argument(
        "--importance", type=number(0, 100), metavar="X", help="weight of importance, 0 to 100 (0)"
    )


def _add_analyze(parser: ArgumentParser) -> None:
    parser.add_argument("text", nargs="*", help="the text (else standard input)")
    parser.add_argument(
        "--occurred-at", type=moment, metavar="TIME", help="what relative dates count from"
    )
    parser.add_argument("--source")


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


def remember(shell: Shell) -> None:
    """Store one memory; `import` stores those of files."""
    args = shell.args
    with shell.client() as client:
        result = client.remember(
            storable(text_of(args.text)),
            kind=args.kind,
            tags=args.tag,
            source=args.source,
            event_time=args.event_time,
            metadata=pairs("--metadata", args.metadata),
            importance=args.importance,
            confidence=args.confidence,
            expires_at=args.expires_at,
            idempotency_key=args.idempotency_key,
        )
        value = result.to_json()
        if args.wait:
            value["status"] = client.wait([result.id], timeout_s=args.wait)[0].status
    known = " (known already)" if result.duplicate else ""
    shell.show(value, [f"{result.id}  {value['status']}{known}"])
    tell_redacted(result.redacted)
    beside = [option for name, option in _BESIDE.items() if getattr(args, name)]
    if result.duplicate and beside:
        warn(
            f"This is known already, and {', '.join(beside)} changed nothing of it: "
            f"`memrelay edit {result.id} {beside[0]} …` does."
        )


# What the kind and the time make another memory of, these do not.
_BESIDE = {
    "tag": "--tag",
    "source": "--source",
    "metadata": "--metadata",
    "importance": "--importance",
    "confidence": "--confidence",
    "expires_at": "--expires-at",
}


def storable(text: str) -> str:
    """Return a text that is short enough to be a memory.

    Raises:
        ConfigError: it is longer than a relayer takes.
    """
    if len(text.encode(errors="surrogatepass")) > TEXT_BYTES_MAX:
        raise ConfigError("The text is longer than 1 MiB.")
    return text


def recall(shell: Shell) -> None:
    """Show the memories that fit a query."""
    args = shell.args
    with shell.client() as client:
        found = client.recall(
            text_of(args.query),
            limit=args.limit,
            mode=args.mode,
            min_primary_results=args.min_primary,
            vector_weight=args.vector_weight,
            text_weight=args.text_weight,
            goal=args.goal,
            aliases=_aliases(args.alias or ()),
            source=args.source,
            metadata=pairs("--metadata", args.metadata),
            writers=args.writer,
            min_relevance=args.min_relevance,
            scoring_weights=_weights(args),
            max_tokens=args.max_tokens,
            explain=args.explain or None,
            **_narrowing(args),
        )
        if not (found.results or found.left_out or found.dropped_count):
            tell_nothing_found(shell, client, args.namespace or ())
    lines = (line for memory in found.results for line in _recalled_lines(memory))
    shell.show(found.to_json(), lines)
    if found.left_out:
        warn(f"{found.left_out} more did not fit into {args.max_tokens} tokens.")
    if found.dropped_count:
        warn(f"{found.dropped_count} more could not be opened.")
    if found.degraded:
        warn("Some memories could be searched by words only.")


def _narrowing(args: Namespace) -> dict[str, Any]:
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


def _recalled_lines(memory: Memory) -> Iterator[str]:
    yield _memory_line(memory)
    if (why := memory.explain) is None:
        return
    cosine = "no vector yet" if why.cosine is None else f"cosine {why.cosine:.3f}"
    yield f"      {cosine}, words {why.keyword:.3f}: {', '.join(why.matched) or 'none matched'}"
    parts = " + ".join(f"{name} {part:.3f}" for name, part in why.parts.items() if part)
    yield f"      score {memory.score or 0:.3f}{f' = {parts}' if parts else ''}"


def _memory_line(memory: Memory) -> str:
    near = "" if memory.distance is None else f"{max(0.0, 1 - memory.distance):4.0%}  "
    return f"{near}{memory.id}  {one_entry(shown(memory))}"


def tell_redacted(redacted: Mapping[str, Any] | None) -> None:
    """Tell people that what is stored is not all that they gave."""
    if count := secrets_in(redacted):
        warn(f"{counted(count, 'secret')} taken out: {', '.join(redacted or ())}.")


def analyze(shell: Shell) -> None:
    """Store the facts of a text."""
    args = shell.args
    with shell.client() as client:
        found = client.analyze(text_of(args.text), occurred_at=args.occurred_at, source=args.source)
    lines = [f"{fact.id}  {one_entry(fact.text)}" for fact in found.facts]
    shell.show(found.to_json(), [*lines, summary(found)])
    tell_redacted(found.redacted)
    if found.problem:
        warn(one_entry(found.problem))


def ask(shell: Shell) -> None:
    """Answer a question from memories."""
    args = shell.args
    with shell.client() as client:
        reply = client.ask(text_of(args.question), limit=args.limit, **_narrowing(args))
    shell.show(reply.to_json(), [reply.answer])
