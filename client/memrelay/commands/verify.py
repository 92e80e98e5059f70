"""The commands that check the relayer: verify, checkpoint.

It does not own what must hold (`verification.py`) or exit codes (`cli.py`).
"""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from memrelay.commands.parsers import Adder
from memrelay.commands.progress import ProgressLine
from memrelay.commands.shell import Shell
from memrelay.config import expand_home
from memrelay.errors import ConfigError, Invalid, UntrustedRelayer
from memrelay.plurals import format_count
from memrelay.sealed.keys import account_text
from memrelay.sealed.objects import from_base64, to_base64
from memrelay.sealed.receipts import Checkpoint
from memrelay.secure_files import write_private_text
from memrelay.sync_client import SyncMemoryClient
from memrelay.verification import Finding, Verification

_FILE_BYTES_MAX = 256 * 1024
_NOUNS = {"receipts": "receipt", "blobs": "blob"}


def register(add: Adder) -> None:
    """Add the commands that check the relayer."""
    _add_verify(add("verify", verify, namespace=False))
    parser = add("checkpoint", checkpoint, namespace=False)
    parser.add_argument("file", metavar="FILE", help="where to write it; - for the output")
    parser.add_argument("--force", action="store_true", help="replace the file")


def _add_verify(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--namespace", action="append", metavar="NAME", help="look at its memories only; repeatable"
    )
    parser.add_argument(
        "--checkpoint",
        action="append",
        default=[],
        metavar="FILE",
        help="the history must contain it; repeatable: two that contradict each other are proof",
    )
    parser.add_argument(
        "--since-checkpoint", metavar="FILE", help="follow the history from there only"
    )
    parser.add_argument("--open", action="store_true", help="open every memory with this key, too")


def verify(shell: Shell) -> None:
    """Check the whole history, and everything stored against it.

    The exit code is 0 only if all holds.
    """
    args = shell.args
    with shell.client() as client, ExitStack() as line:
        found = client.verify(
            namespaces=args.namespace,
            checkpoints=[_read(path) for path in args.checkpoint],
            since=None if args.since_checkpoint is None else _read(args.since_checkpoint),
            open_all=args.open,
            progress=_make_progress(line, _count_all(client) if not args.namespace else {}),
        )
    shell.show(found.to_json(), _lines(found))
    if not found.ok:
        raise UntrustedRelayer("verify", f"{_count_failures(found).capitalize()}.")


def _count_all(client: SyncMemoryClient) -> dict[str, int]:
    """Return how much there is to check, as far as the relayer counts it."""
    used = client.usage()
    return {"blobs": used.memory_count + used.revision_count}


def _make_progress(line: ExitStack, totals: Mapping[str, int]) -> Callable[[str, int], None]:
    """Return a function that shows the progress; a new kind of check ends the line before it."""
    lines: dict[str, ProgressLine] = {}

    def tell(what: str, number: int) -> None:
        if what not in lines:
            line.close()
            lines[what] = line.enter_context(ProgressLine(sys.stderr, "checked", _NOUNS[what]))
            lines[what].expect(totals.get(what))
        lines[what](number)

    return tell


def _lines(found: Verification) -> Iterator[str]:
    for finding in found.findings:
        yield _line(finding)
    yield from found.notes
    if found.unchecked:
        yield f"Not checked, for this key cannot see it: {', '.join(found.unchecked)}."
    if found.unproven:
        yield f"{found.unproven} stored revisions lie before the history that was followed."
    verdict = "everything holds" if found.ok else _count_failures(found)
    opened = f", {found.opened} opened" if found.opened else ""
    yield (
        f"checked {format_count(found.receipts, 'receipt')}, "
        f"{format_count(found.grants, 'grant')}, "
        f"{format_count(found.blobs, 'blob')}{opened}: {verdict}"
    )


def _count_failures(found: Verification) -> str:
    number = len(found.findings)
    return "one thing does not hold" if number == 1 else f"{number} things do not hold"


def _line(finding: Finding) -> str:
    about = finding.id or ""
    number = "" if finding.seq is None else f" receipt {finding.seq}"
    expected = "" if finding.expected is None else f" expected {finding.expected};"
    return f"{finding.what}: {about}{number}:{expected} found {finding.found}"


def checkpoint(shell: Shell) -> None:
    """Write a signed checkpoint of the account's history.

    Compare with it later, or elsewhere.
    """
    path = expand_home(shell.args.file)
    to_output = shell.args.file == "-"
    if not to_output and path.exists() and not shell.args.force:
        raise ConfigError(f"{path} exists; --force replaces it.")
    with shell.client() as client:
        one = client.checkpoint()
    value = _json(one)
    if to_output:
        print(json.dumps(value, indent=2))
        return
    write_private_text(path, json.dumps(value, indent=2) + "\n")
    shell.show(value | {"file": str(path)}, [f"{path}: receipt {one.seq}, {one.head.hex()}"])


def _json(one: Checkpoint) -> dict[str, Any]:
    """The members are for people; only the signed object counts."""
    return {
        "account_id": account_text(one.account),
        "relayer_key": one.relayer.hex(),
        "seq": one.seq,
        "head": one.head.hex(),
        "grant_serial": one.grant_serial,
        "time": one.time_ms,
        "checkpoint": to_base64(one.signed),
    }


def _read(name: str) -> bytes:
    """Return the signed object in a checkpoint's file.

    Raises:
        ConfigError: it is no such file.
    """
    try:
        with expand_home(name).open("rb") as file:
            value = json.loads(file.read(_FILE_BYTES_MAX))
        return from_base64(value["checkpoint"], "checkpoint")
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, Invalid):
        raise ConfigError(
            f"{name} is no checkpoint; make one with `memrelay checkpoint`."
        ) from None
