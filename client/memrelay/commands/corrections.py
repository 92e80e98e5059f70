"""The commands that correct: edit, pin, unpin, review, settings.

It does not own showing (`lists.py`) or erasing (`deletion.py`).
"""

from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from memrelay.commands.entries import one_entry, render_text, writer
from memrelay.commands.ids import ID_HELP, IDS_HELP, find_id, find_ids
from memrelay.commands.memories import storable, tell_redacted
from memrelay.commands.parsers import Adder, add_page, pair, pairs, tags, whole
from memrelay.commands.shell import Shell, text_of
from memrelay.commands.streams import warn
from memrelay.commands.tables import display_ids
from memrelay.commands.times import parse_future, parse_time
from memrelay.errors import ConfigError, MemrelayError, NotFound, TransportError
from memrelay.local_time import when
from memrelay.models import KINDS
from memrelay.operations.corrections import CLEARABLE
from memrelay.outcomes import Doubtful, StateChanged
from memrelay.sync_client import SyncMemoryClient

_REVIEW = ("list", "approve", "reject", "resolve")


def register(add: Adder) -> None:
    """Add the commands that correct."""
    _add_edit(add("edit", edit))
    for name, command in (("pin", pin), ("unpin", unpin)):
        add(name, command, namespace=False).add_argument("id", nargs="+", help=IDS_HELP)
    _add_review(add("review", review))
    settings = add("settings", change_settings, namespace=False)
    settings.add_argument("setting", nargs="*", type=pair, metavar="NAME=VALUE", help="to change")


def _add_edit(parser: ArgumentParser) -> None:
    parser.add_argument("id", help=ID_HELP)
    parser.add_argument("words", nargs="*", metavar="TEXT", help="the new text, if that changes")
    parser.add_argument("--text", help="the same; - for standard input")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument(
        "--tag", action="extend", type=tags, metavar="TAG", help="instead of all; a,b or repeated"
    )
    parser.add_argument("--source")
    parser.add_argument(
        "--event-time", type=parse_time, metavar="TIME", help='2026-05-04, "3 days ago"'
    )
    parser.add_argument(
        "--metadata", action="append", type=pair, metavar="KEY=VALUE", help="instead of all"
    )
    parser.add_argument("--importance", choices=("vital", "standard", "trivial"))
    parser.add_argument("--confidence", choices=("high", "medium", "low"))
    parser.add_argument(
        "--expires-at", type=parse_future, metavar="TIME", help='30d, "tomorrow 9:00"'
    )
    parser.add_argument(
        "--clear", action="append", choices=CLEARABLE, help="have none any more; repeatable"
    )
    parser.add_argument(
        "--revision",
        type=whole(1, 100),
        metavar="N",
        help="only if this is still the newest one",
    )


def _add_review(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=_REVIEW,
        default="list",
        help="approve: recall it, beside what it speaks against; reject: never recall it; "
        "resolve: it replaces what it speaks against (list)",
    )
    parser.add_argument("id", nargs="*", help=IDS_HELP)
    add_page(parser)


def edit(shell: Shell) -> None:
    """Correct a memory; what it said before stays in its history."""
    args = shell.args
    if args.words and args.text is not None:
        raise ConfigError("Give the new text once: behind the id, or with --text.")
    text = " ".join(args.words) if args.words else args.text
    changes: dict[str, Any] = {
        "text": None if text is None else _new_text(text),
        "kind": args.kind,
        "tags": args.tag,
        "source": args.source,
        "event_time": args.event_time,
        "metadata": pairs("--metadata", args.metadata),
        "importance": args.importance,
        "confidence": args.confidence,
        "expires_at": args.expires_at,
    }
    cleared = args.clear or ()
    if not cleared and all(value is None for value in changes.values()):
        raise ConfigError("Say what to change: a new text, --kind, --tag … (see --help).")
    for name in cleared:
        if changes[name] is not None:
            raise ConfigError(f"Give {name} or clear them, not both.")
    with shell.client() as client:
        result = client.edit(
            find_id(client, args.id),
            clear=cleared,
            revision=args.revision,
            namespace=args.namespace,
            **changes,
        )
    told = "says that already" if result.unchanged else f"is revision {result.revision} now"
    shell.show(result.to_json(), [f"{result.id}  {told}"])
    tell_redacted(result.redacted)


def _new_text(given: str) -> str:
    # An unset variable of a shell gives an empty text, which must not be taken for none.
    if not given.strip():
        raise ConfigError("The new text is empty.")
    return storable(text_of([given]))


def pin(shell: Shell) -> None:
    """Protect memories from being superseded, merged or expired.

    No rule supersedes them, and their namespace lets none expire.
    """
    _change_each(
        shell, lambda client, memory_id: client.pin(memory_id), "pinned", "was pinned already"
    )


def unpin(shell: Shell) -> None:
    """Take memories' protection away."""
    _change_each(
        shell, lambda client, memory_id: client.unpin(memory_id), "not pinned", "was not pinned"
    )


def _change_each(
    shell: Shell,
    change: Callable[[SyncMemoryClient, str], StateChanged],
    told: str,
    unchanged: str,
) -> None:
    """Change the memories that were named; of several, show what became of each.

    Raises:
        NotFound: some are not there; the others are changed.
        MemrelayError: some could not be changed; if the relayer is away, the rest is not tried.
    """
    with shell.client() as client:
        ids = list(dict.fromkeys(find_ids(client, shell.args.id)))
        if len(ids) == 1:
            done = change(client, ids[0])
            return shell.show(done.to_json(), [f"{ids[0]}  {told if done.receipt else unchanged}"])
        entries: list[dict[str, Any]] = []
        failures: list[MemrelayError] = []
        for memory_id in ids:
            try:
                entries.append(change(client, memory_id).to_json())
            except MemrelayError as error:
                failures.append(error)
                entries.append({"id": memory_id, "error": str(error)})
                if isinstance(error, TransportError):
                    break
    lines = (
        f"{entry['id']}  {entry.get('error', told if entry.get('receipt') else unchanged)}"
        for entry in entries
    )
    shell.show({"results": entries}, lines)
    _raise_of_several(failures)


def _raise_of_several(failures: Sequence[MemrelayError]) -> None:
    if failures and all(isinstance(error, NotFound) for error in failures):
        raise not_found(len(failures))
    if failures:
        raise MemrelayError(f"{len(failures)} could not be changed.")


def not_found(number: int) -> NotFound:
    """Return the error for so many of several that are not there."""
    told = "One was" if number == 1 else f"{number} were"
    return NotFound(f"{told} not found.", status=404, code="not_found")


def review(shell: Shell) -> None:
    """Show the memories that wait for a decision, and decide."""
    action, ids = shell.args.action, shell.args.id
    if bool(ids) != (action != "list"):
        raise ConfigError(f"`review {action}` takes {'no ids' if ids else 'ids of memories'}.")
    match action:
        case "approve":
            _change_each(shell, lambda client, one: client.approve(one), "approved", _NOT_WAITING)
        case "reject":
            _change_each(
                shell, lambda client, one: client.reject(one), "rejected", "was rejected before"
            )
        case "resolve":
            _change_each(shell, _resolve, "stands alone", _NOT_WAITING)
        case _:
            _list_review(shell)


_REJECTED = "was rejected before"
_NOT_WAITING = "waits for nothing: it is recalled as it is"


def _resolve(client: SyncMemoryClient, memory_id: str) -> StateChanged:
    links = client.history(memory_id).links
    others = [
        link.other_id
        for link in links
        if link.relation == "contradicts" and link.memory_id == memory_id
    ]
    if not others:
        raise ConfigError(f"{memory_id} speaks against no other memory.")
    return client.resolve(memory_id, others=others)


def _list_review(shell: Shell) -> None:
    args = shell.args
    with shell.client() as client:
        page = client.review(limit=args.limit, cursor=args.cursor)
    named = [one.id for memory in page.memories for one in (memory, *memory.others)]
    ids = display_ids(named)
    lines = (line for one in page.memories for line in _doubt_lines(one, ids))
    shell.show(page.to_json(), lines)
    if not (page.memories or page.next_cursor or args.json):
        warn("Nothing waits to be looked at.")
    if page.next_cursor and not args.json:
        warn(f"There are more: --cursor {page.next_cursor}")


def _doubt_lines(memory: Doubtful, ids: Mapping[str, str]) -> Iterator[str]:
    yield f"{ids[memory.id]}  {when(memory.created_at)}  {writer(memory)}  {memory.reason}"
    yield f"    {one_entry(render_text(memory))}"
    yield from (
        f"    against {ids[other.id]}  {one_entry(render_text(other))}" for other in memory.others
    )


def change_settings(shell: Shell) -> None:
    """Show the account's settings, for all its keys; change some."""
    given = [(name.replace("-", "_"), text) for name, text in shell.args.setting]
    changes = {name: _value(name, text) for name, text in given}
    with shell.client() as client:
        found = client.change_settings(**changes) if changes else client.account_settings()
    values = found.to_json()
    shell.show({"settings": values}, _setting_lines(values.items()))


def _setting_lines(values: Iterable[tuple[str, Any]]) -> Iterator[str]:
    for name, value in values:
        yield f"{name} = {_SWITCH[value] if isinstance(value, bool) else value}"


_SWITCH = {True: "on", False: "off"}
_SETTINGS: dict[str, tuple[str, ...] | None] = {
    "redact": ("on", "off"),
    "contradictions": ("newer_wins", "review"),
    "low_confidence": ("keep", "review"),
    "keep_turns": ("on", "off"),
    "count_recalls": ("on", "off"),
    "consolidate_every_h": None,
}


def _value(name: str, text: str) -> Any:
    """Return what a setting is set to."""
    if name not in _SETTINGS:
        raise ConfigError(f"There is no setting {name}; there are {', '.join(_SETTINGS)}.")
    words = _SETTINGS[name]
    if words is None:
        if not text.isdecimal():
            raise ConfigError(f"{name} is a whole number.")
        return int(text)
    if text not in words:
        raise ConfigError(f"{name} is {' or '.join(words)}.")
    return text == "on" if words == ("on", "off") else text
