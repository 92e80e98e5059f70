"""The command keys admit, and what all commands on requests to be let in share.

It does not own a request's form (`sealed/join_request.py`), or making one (`join.py`).

- Nothing is granted before its owner saw whose request it is and what it would get.
- A request that was granted before is granted no second time.
"""

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memrelay.commands.key_choice import describe_grants
from memrelay.commands.parsers import Adder, number_of
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.commands.times import parse_future
from memrelay.config import expand_home
from memrelay.errors import ConfigError, MemrelayError, NotGranted
from memrelay.local_time import when
from memrelay.sealed.grants import Grant
from memrelay.sealed.join_request import (
    PREFIX,
    TEXT_CHARACTERS_MAX,
    JoinRequest,
    make_fingerprint,
    read_requests,
)
from memrelay.sealed.keys import normalise_namespace
from memrelay.sealed.ledger import Ledger

_ROLES = ("reader", "writer", "owner")  # the weaker first
_RENEWAL = timedelta(days=1)  # so that the same span, given again a little later, grants nothing


def register_admit(keys: Adder) -> None:
    """Add the command to those on keys."""
    parser = keys("admit", keys_admit, namespace=False)
    add_requests(parser)
    add_grant_options(parser)


def add_requests(parser: ArgumentParser) -> None:
    """Add the arguments of a command that grants what requests ask for."""
    parser.add_argument(
        "request",
        nargs="+",
        help="its text in quotes, a file of one or more, or - (standard input)",
    )
    parser.add_argument("--yes", action="store_true", help="the fingerprints were compared")


def add_grant_options(parser: ArgumentParser) -> None:
    """Add the arguments that say what a key is to hold."""
    parser.add_argument("--namespace", action="append", metavar="NAME", help="may be repeated")
    parser.add_argument("--whole-account", action="store_true", help="every namespace")
    parser.add_argument("--role", choices=("owner", "writer", "reader"), default="writer")
    parser.add_argument("--label", help="a name for the key (user@machine)")
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument(
        "--expires", type=parse_future, metavar="TIME", help='90d, "in 2 weeks", 2026-12-31'
    )
    ends.add_argument(
        "--expires-days",
        type=number_of(timedelta(days=1), 0, 36_500, above=True),
        metavar="DAYS",
        help="from now",
    )


def read_wish(args: Namespace) -> dict[str, Any]:
    """Return what a key is to hold, as arguments of `add_key`.

    Raises:
        ConfigError: neither namespaces nor the whole account are named, or both.
    """
    if bool(args.namespace) == args.whole_account:
        raise ConfigError("Choose either --namespace (repeatable) or --whole-account.")
    names = None if args.whole_account else sorted(set(map(normalise_namespace, args.namespace)))
    expires = None if args.expires is None else args.expires.time
    if args.expires_days is not None:
        expires = datetime.now(UTC) + timedelta(days=args.expires_days)
    return {"namespaces": names, "role": args.role, "label": args.label, "expires": expires}


def read_given(shell: Shell) -> list[JoinRequest]:
    """Return the requests of the arguments, of files that they name, or of standard input.

    Of several that one key made, the one that ends last counts.

    Raises:
        Invalid: there is none, or one of them was cut or altered.
        ConfigError: a file cannot be read.
    """
    text = "\n".join(map(_read_text, shell.args.request))
    latest: dict[bytes, JoinRequest] = {}
    for request in read_requests(text):
        known = latest.get(request.recipient, request)
        latest[request.recipient] = max(known, request, key=lambda found: found.expires_ms)
    return list(latest.values())


def _read_text(word: str) -> str:
    if word == "-":
        return sys.stdin.read(TEXT_CHARACTERS_MAX + 1)
    if PREFIX in word.lower() or len(word) > 255 or not _is_file(expand_home(word)):
        return word
    with expand_home(word).open(encoding="utf-8", errors="replace") as file:
        return file.read(TEXT_CHARACTERS_MAX + 1)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def agree(shell: Shell, lines: Sequence[str]) -> None:
    """Show what would be granted to whom, and return if the person says yes.

    Raises:
        ConfigError: nobody is there to ask.
        MemrelayError: the answer is no.
    """
    for line in lines:
        warn(line)
    if lines and not shell.args.yes:
        shell.confirm(
            "Does the other side see the same fingerprints? Grant this?",
            otherwise="Nothing was granted.",
        )


def format_reply(account_id: str) -> str:
    """Return the line that goes back to whoever made a request; it holds nothing secret."""
    return f"There, type: memrelay join --finish --account {account_id}"


def keys_admit(shell: Shell) -> None:
    """Grant what is named to a key that was made elsewhere, by its request."""
    args = shell.args
    wish, requests = read_wish(args), read_given(shell)
    if args.label is not None and len(requests) > 1:
        raise ConfigError("--label is for one request; several go by their own labels.")
    with shell.client() as client:
        ledger, now_ms = client.grants(), int(time.time() * 1000)
        own = ledger.list_grants_to(client.settings.identity.public_key, now_ms)
        if not any(grant.role == "owner" for grant in own):
            raise NotGranted("Only an owner's key lets others in; name its profile.")
        lacking = {
            request.recipient: _find_lacking(ledger, request, wish, now_ms) for request in requests
        }
        new = [request for request in requests if lacking[request.recipient] is not None]
        for request in new:
            client.check_request(request)
        agree(shell, [_describe(request, wish) for request in new])
        for request in new:
            names = lacking[request.recipient] or None
            client.admit_key(request, **{**wish, "namespaces": names})
        after = client.grants()
    shown, lines = list[dict[str, Any]](), list[str]()
    for request in requests:
        state = "admitted" if request in new else "kept"
        held = describe_grants(after.list_grants_to(request.recipient, now_ms))
        fingerprint = make_fingerprint(request.recipient)
        label = (args.label or request.label) if request in new else request.label
        lines.append(f"{state}  {fingerprint}  {label}  {held}")
        shown.append(
            {
                "public_key": request.recipient.hex(),
                "fingerprint": fingerprint,
                "label": label,
                "state": state,
                "holds": held,
            }
        )
    account = client.settings.account_id
    shell.show({"keys": shown, "account_id": account}, [*lines, format_reply(account)])


def _find_lacking(
    ledger: Ledger, request: JoinRequest, wish: dict[str, Any], now_ms: int
) -> list[str] | None:
    """Return the namespaces that a key lacks of those wished, empty for the whole account.

    None says that it holds all of it.

    Raises:
        MemrelayError: the key was revoked.
    """
    if ledger.is_revoked(request.recipient):
        raise MemrelayError(
            f"{request} is of a key that was revoked: have `memrelay join --force` run there."
        )
    held = [
        grant
        for grant in ledger.list_grants_to(request.recipient, now_ms)
        if _ROLES.index(grant.role) >= _ROLES.index(wish["role"]) and _lasts(grant, wish["expires"])
    ]
    if any(grant.whole_account for grant in held):
        return None
    if wish["namespaces"] is None:
        return []
    names = [n for n in wish["namespaces"] if not any(grant.names(n) for grant in held)]
    return names or None


def _lasts(grant: Grant, end: datetime | None) -> bool:
    if grant.expires_ms is None:
        return True
    return end is not None and grant.expires_ms >= (end - _RENEWAL).timestamp() * 1000


def _describe(request: JoinRequest, wish: dict[str, Any]) -> str:
    names = "the whole account" if wish["namespaces"] is None else ", ".join(wish["namespaces"])
    until = "" if wish["expires"] is None else f" until {when(wish['expires'])}"
    made = when(datetime.fromtimestamp(request.created_ms // 1000, UTC))
    called = request.label or "no name"
    return f"{request}, by {called} at {made}, would be granted {wish['role']} of {names}{until}"
