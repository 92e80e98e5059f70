"""The commands that erase: forget and close.

It does not own exit codes (`cli.py`).

- More than was named by its id is erased only after a yes, from `--yes` or from a terminal.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from memrelay.commands.corrections import not_found
from memrelay.commands.entries import render_text
from memrelay.commands.ids import IDS_HELP, find_ids
from memrelay.commands.lists import add_filters, filters_of
from memrelay.commands.parsers import Adder
from memrelay.commands.progress import ProgressLine
from memrelay.commands.shell import Shell
from memrelay.commands.tables import Column, format_table
from memrelay.errors import ConfigError, MemrelayError, NotFound
from memrelay.gateway.erasure_mark import note_erasure
from memrelay.outcomes import ForgottenMany
from memrelay.plurals import format_count
from memrelay.sealed.objects import from_base64, read_claimed_member
from memrelay.sync_client import SyncMemoryClient

_TOLD = {"erased": "erased", "already_erased": "was erased before", "not_found": "not found"}
_WOULD = _TOLD | {"matched": "would be erased"}
_SHOWN_MAX = 20  # texts of a dry run, each of which is asked for
_COLUMNS = (Column("ID", is_id=True), Column("TEXT", is_text=True), Column("OUTCOME"))


def register(add: Adder) -> None:
    """Add the commands that erase."""
    _add_forget(add("forget", forget))
    close = add("close", close_account, namespace=False)
    close.add_argument("account_id", help="the account's id, so that it is no other")
    close.add_argument("--yes", action="store_true", help="do not ask")


def _add_forget(parser: ArgumentParser) -> None:
    parser.add_argument("id", nargs="*", help=IDS_HELP)
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be erased")
    parser.add_argument(
        "--yes", action="store_true", help="do not ask; ids are never asked about, the rest is"
    )
    add_filters(parser)


def forget(shell: Shell) -> None:
    """Erase memories with their history, for good.

    Name them by id, by what fits, or all of --namespace.
    """
    args = shell.args
    filtered = any(value is not None for value in filters_of(args).values())
    if args.id and (filtered or args.namespace):
        raise ConfigError("Name memories by their ids, or by --namespace and filters, not both.")
    if not (args.id or filtered or args.namespace):
        raise ConfigError("Say what to forget: ids, filters, or --namespace for all of it.")
    with shell.client() as client:
        ids = find_ids(client, args.id)
        if not args.dry_run:
            note_erasure(client.settings)
        if len(ids) == 1 and not args.dry_run:
            return _forget_one(shell, client, ids[0])
        if ids:
            found = client.forget_many(ids, dry_run=args.dry_run)
        else:
            found = _forget_matching(shell, client, filtered)
        texts = _read_texts(client, found, ids) if args.dry_run and not args.json else {}
    shell.show(_value(found), _lines(found, texts, dry_run=args.dry_run))
    missing = sum(one.status == "not_found" for one in found.results or ())
    if missing:
        raise not_found(missing)


def _forget_one(shell: Shell, client: SyncMemoryClient, memory_id: str) -> None:
    gone = client.forget(memory_id)
    state = "erased" if gone.erased and not gone.pending else "pending"
    told = "" if gone.receipt is None else f"  {_describe_receipts({gone.receipt})}"
    shell.show(gone.to_json(), [f"{gone.id}  {state}{told}"])


def _forget_matching(shell: Shell, client: SyncMemoryClient, filtered: bool) -> ForgottenMany:
    filters = filters_of(shell.args)
    name = client.settings.namespace

    def find_fitting() -> ForgottenMany:
        if filtered:
            return client.forget_matching(dry_run=True, **filters)
        return client.forgettable()

    if shell.args.dry_run:
        return find_fitting()
    total = None
    if not shell.args.yes:
        fitting = find_fitting()
        total = None if fitting.more else fitting.matched
        count = _count(fitting)
        which = f"{count} of {name}" if filtered else f"all of {name} ({count})"
        shell.confirm(f"Erase {which} for good?")
    with ProgressLine(sys.stderr, "erased") as progress:
        progress.expect(total)
        if filtered:
            return client.forget_matching(progress=progress, **filters)
        return client.forget_namespace(name, progress=progress)


def _count(found: ForgottenMany) -> str:
    return (
        f"{found.matched} or more memories" if found.more else format_count(found.matched, "memory")
    )


def _value(found: ForgottenMany) -> dict[str, Any]:
    return found.to_json()


def _read_texts(
    client: SyncMemoryClient, found: ForgottenMany, ids: Sequence[str]
) -> dict[str, str]:
    """Return the texts of the first memories that would be erased, by id."""
    texts = {}
    for memory_id in [*(ids or found.ids)][:_SHOWN_MAX]:
        with suppress(NotFound):
            texts[memory_id] = render_text(client.get(memory_id))
    return texts


def _lines(found: ForgottenMany, texts: Mapping[str, str], *, dry_run: bool) -> Iterator[str]:
    if found.results is not None:
        told = _WOULD if dry_run else _TOLD
        rows = [
            (one.id, texts.get(one.id, ""), told.get(one.status, one.status))
            for one in found.results
        ]
        if dry_run:
            yield from format_table(_COLUMNS, rows)
            return
        yield from (f"{one}  {outcome}" for one, _, outcome in rows)
        if found.receipts:
            yield _describe_receipts(found.receipts)
        return
    if dry_run:
        yield from format_table(_COLUMNS[:2], [(one, texts.get(one, "")) for one in found.ids])
        yield f"{_count(found)} would be erased"
        return
    pending = "; an outside copy is still being erased" if found.pending else ""
    yield f"{found.erased} erased{pending}"
    if found.receipts:
        yield _describe_receipts(found.receipts)


def _describe_receipts(texts: Iterable[str]) -> str:
    """Say the numbers of receipts, which were verified as they came."""
    numbers = sorted({_number(text) for text in texts})
    if len(numbers) == 1:
        return f"receipt {numbers[0]}"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"receipts {numbers[0]} to {numbers[-1]}"
    return f"receipts {', '.join(map(str, numbers))}"


def _number(text: str) -> int:
    number = read_claimed_member(from_base64(text, "receipt"), "seq")
    if not isinstance(number, int):
        raise MemrelayError("A receipt has no number.")
    return number


def close_account(shell: Shell) -> None:
    """Erase the whole account; nobody can bring it back.

    Memories, keys and history go.
    """
    with shell.client() as client:
        if shell.args.account_id != client.settings.account_id:
            raise ConfigError("This profile is for another account.")
        if not shell.args.yes:
            shell.confirm("Erase this account and all that it holds, for good?")
        closed = client.close_account()
    held = "is being erased" if closed.pending else "is erased"
    shell.show(closed.to_json(), [f"The account is closed; what it held {held}."])
