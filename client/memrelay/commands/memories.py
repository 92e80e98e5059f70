"""The commands on memories: remember, recall, analyze, ask, list, get, forget.

It does not own exit codes (`cli.py`) or the commands on accounts and keys (`account.py`).
"""

from argparse import ArgumentParser

from memrelay.commands.parsers import Adder, pair
from memrelay.commands.shell import Shell, text_of, warn
from memrelay.models import KINDS, Memory
from memrelay.sealed.keys import masked


def register(add: Adder) -> None:
    """Add the commands on memories."""
    _add_remember(add("remember", remember))
    _add_recall(add("recall", recall))
    _add_analyze(add("analyze", analyze))
    _add_ask(add("ask", ask))
    _add_list(add("list", list_memories))
    add("get", get).add_argument("id", help="the memory's id")
    add("forget", forget).add_argument("id", nargs="+", help="the memories' ids")


def _add_remember(parser: ArgumentParser) -> None:
    parser.add_argument("text", nargs="*", help="the text (else standard input)")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--tag", action="append", metavar="TAG", help="may be repeated")
    parser.add_argument("--source")
    parser.add_argument("--event-time", metavar="TIME", help="RFC 3339, with an offset")
    parser.add_argument("--metadata", action="append", type=pair, metavar="KEY=VALUE")
    parser.add_argument("--importance", choices=("vital", "standard", "trivial"))
    parser.add_argument("--confidence", choices=("high", "medium", "low"))
    parser.add_argument("--expires-at", metavar="TIME", help="RFC 3339, with an offset")
    parser.add_argument("--idempotency-key", metavar="KEY", help="store once, however often sent")
    parser.add_argument(
        "--wait",
        type=float,
        nargs="?",
        const=60.0,
        metavar="SECONDS",
        help="until it is found by meaning, too",
    )


def _add_recall(parser: ArgumentParser) -> None:
    parser.add_argument("query", nargs="*", help="the query (else standard input)")
    parser.add_argument("--limit", type=int, default=10)
    parser.add_argument("--mode", choices=("hybrid", "keyword", "vector"))
    parser.add_argument("--kind", action="append", choices=KINDS, help="may be repeated")
    parser.add_argument("--tag", action="append", metavar="TAG", help="may be repeated")
    parser.add_argument("--source")
    parser.add_argument("--after", metavar="TIME", help="RFC 3339, with an offset")
    parser.add_argument("--before", metavar="TIME", help="RFC 3339, with an offset")
    parser.add_argument("--min-relevance", type=float, default=0.3, help="0 to 1 (0.3)")
    parser.add_argument("--explain", action="store_true", help="say why each one was found")


def _add_analyze(parser: ArgumentParser) -> None:
    parser.add_argument("text", nargs="*", help="the text (else standard input)")
    parser.add_argument("--occurred-at", metavar="TIME", help="what relative dates count from")
    parser.add_argument("--source")


def _add_ask(parser: ArgumentParser) -> None:
    parser.add_argument("question", nargs="*", help="the question (else standard input)")
    parser.add_argument("--limit", type=int, default=5, help="memories to consult (5)")


def _add_list(parser: ArgumentParser) -> None:
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("--cursor", help="where the last page ended")
    parser.add_argument("--kind", choices=KINDS)


def remember(shell: Shell) -> None:
    """Store one memory; `import` stores those of files."""
    args = shell.args
    with shell.client() as client:
        result = client.remember(
            text_of(args.text),
            kind=args.kind,
            tags=args.tag,
            source=args.source,
            event_time=args.event_time,
            metadata=dict(args.metadata) if args.metadata else None,
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


def recall(shell: Shell) -> None:
    """Show the memories that fit a query."""
    args = shell.args
    with shell.client() as client:
        found = client.recall(
            text_of(args.query),
            limit=args.limit,
            mode=args.mode,
            kinds=args.kind,
            tags=args.tag,
            source=args.source,
            after=args.after,
            before=args.before,
            min_relevance=args.min_relevance,
            explain=args.explain or None,
        )
    shell.show(found.to_json(), map(_memory_line, found.results))
    if found.dropped_count:
        warn(f"{found.dropped_count} more could not be opened.")
    if found.degraded:
        warn("The relayer searched by words only.")


def _shown(memory: Memory) -> str:
    return "(sealed by another client)" if memory.text is None else memory.text


def _memory_line(memory: Memory) -> str:
    near = "" if memory.distance is None else f"{max(0.0, 1 - memory.distance):4.0%}  "
    return f"{near}{memory.id}  {_shown(memory)}"


def analyze(shell: Shell) -> None:
    """Store the facts of a text."""
    args = shell.args
    with shell.client() as client:
        found = client.analyze(text_of(args.text), occurred_at=args.occurred_at, source=args.source)
    lines = [f"{fact.id}  {fact.text}" for fact in found.facts]
    shell.show(found.to_json(), [*lines, f"{found.fact_count} facts, {found.status}"])


def ask(shell: Shell) -> None:
    """Answer a question from memories."""
    with shell.client() as client:
        reply = client.ask(text_of(shell.args.question), limit=shell.args.limit)
    shell.show(reply.to_json(), [reply.answer])


def list_memories(shell: Shell) -> None:
    """Show memories and who wrote them, newest first."""
    args = shell.args
    with shell.client() as client:
        page = client.list(limit=args.limit, cursor=args.cursor, kind=args.kind)
        keys = client.keys()
    labels = {key.public_key: key.label for key in keys if key.label}
    value = page.to_json()
    lines = []
    for memory, entry in zip(page.memories, value["memories"], strict=True):
        writer = memory.writer or ""
        entry["writer_label"] = labels.get(writer)
        lines.append(f"{memory.id}  {labels.get(writer) or masked(writer)}  {_shown(memory)}")
    shell.show(value, lines)
    if page.next_cursor and not args.json:
        warn(f"There are more: --cursor {page.next_cursor}")


def get(shell: Shell) -> None:
    """Show one memory."""
    with shell.client() as client:
        memory = client.get(shell.args.id, namespace=shell.args.namespace)
    shell.show(memory.to_json(), [_shown(memory)])


def forget(shell: Shell) -> None:
    """Erase memories."""
    with shell.client() as client:
        results = [client.forget(memory_id) for memory_id in shell.args.id]
    entries = [result.to_json() for result in results]
    lines = [f"{r.id}  {'erased' if r.erased and not r.pending else 'pending'}" for r in results]
    shell.show(entries[0] if len(entries) == 1 else entries, lines)
