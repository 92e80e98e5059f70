"""The commands on memories: remember, recall, analyze, ask, list, get, forget.

It does not own arguments and exit codes (`cli.py`) or the commands on accounts and keys
(`account_commands.py`).
"""

import asyncio
import sys

from memrelay.client import MemoryClient
from memrelay.errors import ConfigError
from memrelay.lines import ProgressLine, read_drafts
from memrelay.models import Memory, Remembered
from memrelay.shell import Shell, text_of, warn

_LINES_DEADLINE_S = 300.0  # rate limits count minutes, and a long file sits some of them out


def remember(shell: Shell) -> None:
    """Store one memory, or one for each line of a file."""
    args = shell.args
    if args.jsonl is not None:
        return _remember_lines(shell)
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


def _remember_lines(shell: Shell) -> None:
    args = shell.args
    if args.text:
        raise ConfigError("Give either a text or --jsonl.")
    if args.jsonl == "-":
        drafts = read_drafts(sys.stdin, warn)
    else:
        try:
            with open(args.jsonl, encoding="utf-8-sig") as file:
                drafts = read_drafts(file, warn)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{args.jsonl} cannot be read as UTF-8 text.") from error

    async def store() -> tuple[tuple[Remembered, ...], dict[str, str]]:
        async with MemoryClient.from_settings(
            shell.settings(), deadline_s=_LINES_DEADLINE_S
        ) as client:
            results = await client.remember_many(
                drafts, progress=ProgressLine(sys.stderr), concurrency=args.concurrency
            )
            if not args.wait:
                return results, {}
            ids = dict.fromkeys(result.id for result in results)
            states = await client.wait(ids, timeout_s=args.wait)
            return results, {state.id: state.status for state in states}

    results, states = asyncio.run(store())
    entries = [
        result.to_json() | {"status": states.get(result.id, result.status)} for result in results
    ]
    duplicates = sum(result.duplicate for result in results)
    shell.show(
        {"results": entries, "total": len(entries)},
        [f"{len(results) - duplicates} stored, {duplicates} known already"],
    )


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
    """Show memories, newest first."""
    args = shell.args
    with shell.client() as client:
        page = client.list(limit=args.limit, cursor=args.cursor, kind=args.kind)
    shell.show(page.to_json(), map(_memory_line, page.memories))
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
