"""The commands that store: remember, analyze.

It does not own exit codes (`cli.py`), searching (`recall.py`) or corrections (`corrections.py`).
"""

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from memrelay.commands.entries import one_entry
from memrelay.commands.parsers import (
    Adder,
    add_wait,
    pair,
    pairs,
    tags,
)
from memrelay.commands.shell import Shell, text_of
from memrelay.commands.streams import warn
from memrelay.commands.times import parse_bound, parse_future, parse_time
from memrelay.errors import ConfigError
from memrelay.extraction import summary
from memrelay.importing.drafts import TEXT_BYTES_MAX
from memrelay.local_time import to_local
from memrelay.models import KINDS, secrets_in
from memrelay.plurals import format_count


def register(add: Adder) -> None:
    """Add the commands that store."""
    _add_remember(add("remember", remember))
    _add_analyze(add("analyze", analyze))


def _add_remember(parser: ArgumentParser) -> None:
    parser.add_argument("text", nargs="*", help="the text (else standard input)")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--tag", action="extend", type=tags, metavar="TAG", help="a,b or repeated")
    parser.add_argument("--source")
    parser.add_argument(
        "--event-time", type=parse_time, metavar="TIME", help='2026-05-04, "3 days ago"'
    )
    parser.add_argument("--metadata", action="append", type=pair, metavar="KEY=VALUE")
    parser.add_argument("--importance", choices=("vital", "standard", "trivial"))
    parser.add_argument("--confidence", choices=("high", "medium", "low"))
    parser.add_argument(
        "--expires-at", type=parse_future, metavar="TIME", help='30d, "tomorrow 9:00"'
    )
    parser.add_argument("--idempotency-key", metavar="KEY", help="store once, however often sent")
    add_wait(parser, default_s=60.0, of="it is")


def _add_analyze(parser: ArgumentParser) -> None:
    parser.add_argument("text", nargs="*", help="the text (else standard input)")
    parser.add_argument(
        "--occurred-at",
        type=parse_bound,
        metavar="TIME",
        help='what relative dates count from: 2026-05-04, "yesterday 9:00" (now)',
    )
    parser.add_argument("--source")


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
    shell.show(value, [f"{result.id}  {_describe_stored(value['status'], result.duplicate)}"])
    tell_redacted(result.redacted)
    beside = [option for name, option in _BESIDE.items() if getattr(args, name)]
    if result.duplicate and beside:
        warn(
            f"This is known already, and {', '.join(beside)} changed nothing of it: "
            f"`memrelay edit {result.id} {beside[0]} …` does."
        )


def _describe_stored(status: str, is_known: bool) -> str:
    """Say what became of a text: the API's words are those of jobs."""
    stored = "known already" if is_known else "stored"
    return f"{stored}, {_FOUND.get(status, 'can be found')}"


_FOUND = {
    "uploaded": "can be found",
    "done": "can be found, by meaning too",
    "failed": "but what is stored of it is damaged; `memrelay verify` says more",
    "not_found": "but it is gone again",
}
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


def tell_redacted(redacted: Mapping[str, Any] | None) -> None:
    """Tell people that what is stored is not all that they gave."""
    if count := secrets_in(redacted):
        warn(f"{format_count(count, 'secret')} taken out: {', '.join(redacted or ())}.")


def analyze(shell: Shell) -> None:
    """Store the facts of a text."""
    args = shell.args
    text = text_of(args.text)
    occurred_at = args.occurred_at or to_local(datetime.now(UTC))
    with shell.client() as client:
        found = client.analyze(text, occurred_at=occurred_at, source=args.source)
    lines = [f"{fact.id}  {one_entry(fact.text)}" for fact in found.facts]
    shell.show(found.to_json(), [*lines, summary(found)])
    tell_redacted(found.redacted)
    if found.problem:
        warn(one_entry(found.problem))
