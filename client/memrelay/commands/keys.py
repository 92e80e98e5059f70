"""The commands on the keys of an account: keys list, add, revoke.

It does not own requests to be let in (`admission.py`), recovery (`recovery.py`), rotation
(`rotation.py`), agents' keys (`agents.py`) or which key a name means (`key_choice.py`). Keys for
people are masked, but for those that are to be revoked; a private key is printed once, by the
command that makes it.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memrelay.commands.admission import add_grant_options, read_wish, register_admit
from memrelay.commands.key_choice import KEY_HELP, YES_HELP, choose_keys
from memrelay.commands.new_keys import default_label, grant_key, new_profile, put_in_place
from memrelay.commands.parsers import Adder, parse_nonempty
from memrelay.commands.recovery import register_recovery
from memrelay.commands.shell import Shell
from memrelay.commands.tables import Column
from memrelay.config import expand_home
from memrelay.local_time import when
from memrelay.models import KeyInfo, NewKey
from memrelay.sealed.keys import Identity, mask_key
from memrelay.secure_files import write_private
from memrelay.sync_client import SyncMemoryClient


def register(add: Adder) -> None:
    """Add the commands on keys."""
    keys = add.group("keys", "Show, add or revoke the keys of the account; recover it.")
    keys("list", keys_list)
    added = keys("add", keys_add, namespace=False)
    add_grant_options(added)
    added.add_argument(
        "--out", type=parse_nonempty, metavar="PATH", help="write the key's own profile there"
    )
    register_admit(keys)
    revoke = keys("revoke", keys_revoke)
    revoke.add_argument("key", help=KEY_HELP)
    revoke.add_argument("--yes", action="store_true", help=YES_HELP)
    register_recovery(keys)


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
    Column("MADE", rank=3),
    Column("USED", rank=2),
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
        when(key.last_used_at) if key.last_used_at else "-",
        when(key.expires_at),
    )


def keys_add(shell: Shell) -> None:
    """Add a key that holds some namespaces, or the whole account."""
    args = shell.args
    wish = read_wish(args)
    wish["label"] = default_label() if args.label is None else args.label
    out = expand_home(args.out) if args.out else None
    identity = Identity.generate()
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
