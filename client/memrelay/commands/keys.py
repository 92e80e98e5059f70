"""The commands on the keys of an account: keys list, add, revoke.

It does not own recovery (`recovery.py`), rotation (`rotation.py`), agents' keys (`agents.py`) or
which key a name means (`key_choice.py`). Keys for people are masked, but for those that are to be
revoked; a private key is printed once, by the command that makes it.
"""

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memrelay.commands.entries import when
from memrelay.commands.key_choice import KEY_HELP, YES_HELP, choose_keys
from memrelay.commands.new_keys import default_label, grant_key, new_profile, put_in_place
from memrelay.commands.parsers import Adder, number_of, parse_nonempty
from memrelay.commands.recovery import register_recovery
from memrelay.commands.shell import Shell
from memrelay.commands.tables import Column
from memrelay.commands.times import Moment, parse_future
from memrelay.config import expand_home
from memrelay.errors import ConfigError
from memrelay.models import KeyInfo, NewKey
from memrelay.sealed.keys import Identity, mask_key, normalise_namespace
from memrelay.secure_files import write_private
from memrelay.sync_client import SyncMemoryClient


def register(add: Adder) -> None:
    """Add the commands on keys."""
    keys = add.group("keys", "Show, add or revoke the keys of the account; recover it.")
    keys("list", keys_list)
    _add_keys_add(keys("add", keys_add, namespace=False))
    revoke = keys("revoke", keys_revoke)
    revoke.add_argument("key", help=KEY_HELP)
    revoke.add_argument("--yes", action="store_true", help=YES_HELP)
    register_recovery(keys)


def _add_keys_add(parser: ArgumentParser) -> None:
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
    parser.add_argument(
        "--out", type=parse_nonempty, metavar="PATH", help="write the key's own profile there"
    )


def keys_list(shell: Shell) -> None:
    """Show the keys of the account."""
    with shell.client() as client:
        found = client.keys()
    own = shell.settings().public_key
    rows = [_key_row(key, own) for key in found]
    shell.show_table({"keys": [key.to_json() for key in found]}, _COLUMNS, rows)


_COLUMNS = (
    Column("KEY"),
    Column("LABEL", is_text=True),
    Column("STATE"),
    Column("HOLDS", rank=1),
    Column("MADE", rank=2),
    Column("ENDS", rank=1),
)


def _key_row(key: KeyInfo, own: str) -> Sequence[str]:
    scope = "whole account" if key.namespaces is None else ", ".join(key.namespaces)
    state = "revoked" if key.revoked else "expired" if _is_expired(key) else "valid"
    return (
        mask_key(key.public_key),
        key.label or "-",
        f"{state}, this one" if key.public_key == own else state,
        f"{key.role} of {scope}",
        when(key.created_at),
        when(key.expires_at),
    )


def keys_add(shell: Shell) -> None:
    """Add a key that holds some namespaces, or the whole account."""
    args = shell.args
    if bool(args.namespace) == args.whole_account:
        raise ConfigError("Choose either --namespace (repeatable) or --whole-account.")
    out = expand_home(args.out) if args.out else None
    names = None if args.whole_account else sorted(map(normalise_namespace, args.namespace))
    identity = Identity.generate()
    wish: dict[str, Any] = {
        "namespaces": names,
        "role": args.role,
        "label": default_label() if args.label is None else args.label,
        "expires": _find_end(args.expires_days, args.expires),
    }
    with shell.client() as client:
        if out is None:
            key = client.add_key(identity=identity, **wish)
        else:
            key = _add_key_in(out, client, identity, wish)
    shown = key.to_json() | ({"profile": str(out)} if out else {"private_key": key.private_key})
    scope = "the whole account" if key.namespaces is None else ", ".join(key.namespaces)
    place = f"profile      {out}" if out else f"private key  {key.private_key} (shown only now)"
    lines = [
        f"key          {mask_key(key.public_key)}, {key.role} of {scope}",
        f"account      {key.account_id}",
        f"relayer key  {key.relayer_key}",
        place,
    ]
    shell.show(shown, lines)


def _find_end(days: float | None, moment: Moment | None) -> datetime | timedelta | None:
    if days is not None:
        return timedelta(days=days)
    return None if moment is None else moment.time


def _add_key_in(
    out: Path, client: SyncMemoryClient, identity: Identity, wish: dict[str, Any]
) -> NewKey:
    with new_profile(out, replaces=None) as pending:
        names = wish["namespaces"]
        own = replace(
            client.settings,
            private_key=identity.seed_hex(),
            namespace=names[0] if names else client.settings.namespace,
            relayer_key=client.statement().relayer.hex(),
        )
        # Written before it is granted anything: a key that cannot be kept must hold nothing.
        write_private(pending, own.profile())
        key = grant_key(client, pending, identity, **wish)
        put_in_place(pending, out)
    return key


def keys_revoke(shell: Shell) -> None:
    """Withdraw a key."""
    with shell.client() as client:
        [key] = choose_keys(shell, client, [shell.args.key])
        revoked = client.revoke_key(key.public_key)
    shell.show(
        revoked.to_json(),
        [
            f"{key}, is revoked: the relayer answers it no more",
            "It still opens copies of what it could read before.",
            "`memrelay rotate` gives everybody else new keys and seals that anew under them.",
        ],
    )


def _is_expired(key: KeyInfo) -> bool:
    return key.expires_at is not None and key.expires_at <= datetime.now(UTC)
