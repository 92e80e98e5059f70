"""The commands keys recovery and keys recover: a key on paper, and the way back with it.

It does not own the form of that key (`sealed/recovery.py`). It is shown once, on a terminal or as
the answer to a program, and written nowhere; nor is it taken from an argument.
"""

import sys
import time
from getpass import getpass
from pathlib import Path
from typing import Any

from memrelay.commands.new_keys import (
    default_label,
    grant_key,
    hand_over,
    new_profile,
    put_in_place,
)
from memrelay.commands.parsers import Adder
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.config import VARIABLES, Settings, profile_path, read_profile, spool_folder
from memrelay.errors import ConfigError, MemrelayError
from memrelay.models import KeyInfo
from memrelay.sealed.keys import Identity, account_bytes, mask_key
from memrelay.sealed.ledger import Ledger
from memrelay.sealed.recovery import LINES, recover_identity, recovery_lines
from memrelay.secure_files import write_private

LABEL = "recovery"


def register_recovery(keys: Adder) -> None:
    """Add both commands to those on keys."""
    recovery = keys("recovery", keys_recovery, namespace=False, agent=False)
    recovery.add_argument("--label", default=LABEL, help=f"its name in the list of keys ({LABEL})")
    recover = keys("recover", keys_recover, agent=False)
    recover.add_argument("url", nargs="?", help="the relayer (else the profile's or MEMRELAY_URL)")
    recover.add_argument("--account-id", metavar="0X…", help="else the profile's")
    recover.add_argument("--relayer-key", metavar="HEX", help="else the profile's")
    recover.add_argument("--allow-insecure", action="store_true", help="plain http beyond here")
    recover.add_argument("--label", help="a name for the new key (user@machine)")
    recover.add_argument("--force", action="store_true", help="replace the profile")


def keys_recovery(shell: Shell) -> None:
    """Make a recovery key and print it: an owner's key, to be kept on paper."""
    if not shell.args.json and not sys.stdout.isatty():
        raise ConfigError("A recovery key is shown on a terminal only, or with --json.")
    identity = Identity.generate()
    with shell.client() as client:
        key = client.add_key(
            namespaces=None, role="owner", label=shell.args.label, identity=identity
        )
        url = client.settings.url
    lines = recovery_lines(identity, account_bytes(key.account_id))
    shown = {
        "recovery_key": lines,
        "url": url,
        "account_id": key.account_id,
        "relayer_key": key.relayer_key,
        "public_key": key.public_key,
        "serial": key.serial,
        "label": key.label,
    }
    shell.show(shown, _sheet(shown))


def _sheet(shown: dict[str, Any]) -> list[str]:
    return [
        "RECOVERY KEY of a memrelay account: write it down and keep it where nobody else finds it.",
        "",
        *(f"    {number}  {line}" for number, line in enumerate(shown["recovery_key"], 1)),
        "",
        f"    relayer      {shown['url']}",
        f"    account      {shown['account_id']}",
        f"    relayer key  {shown['relayer_key']}",
        "",
        "It owns the account: it reads everything, adds keys and takes them away. It is not shown",
        "again and not kept on this machine. When every other key is lost, it is the way back:",
        "    memrelay keys recover RELAYER --account-id ACCOUNT --relayer-key RELAYER_KEY",
        "If it is lost as well, a sealed account cannot be read again by anybody. If somebody else",
        f"may have seen it: memrelay rotate --revoke {mask_key(shown['public_key'])}",
    ]


def keys_recover(shell: Shell) -> None:
    """Get back into an account with its recovery key: give this machine a new owner's key."""
    path = profile_path(shell.args.profile, shell.environ)
    with new_profile(path, replaces=shell.args.force) as pending:
        values = _collect_profile(shell, path)
        recovery = recover_identity(_read_typed_key(), account_bytes(values["account_id"]))
        mine = Identity.generate()
        # Written before it is granted anything: a key that cannot be kept must not own anything.
        write_private(pending, {**values, "private_key": mine.seed_hex()})
        settings = Settings(**{**values, "private_key": recovery.seed_hex()})
        with shell.client(settings) as client:
            wish = {
                "namespaces": None,
                "role": "owner",
                "label": shell.args.label or default_label(),
            }
            key = grant_key(client, pending, mine, **wish)
            values |= {"private_key": mine.seed_hex(), "relayer_key": key.relayer_key}
            write_private(pending, values)
            before = read_profile(path, missing_ok=True)
            put_in_place(pending, path)
            if before.get("account_id") == values["account_id"] and "private_key" in before:
                folder = spool_folder(shell.args.profile, shell.environ)
                hand_over([folder], Identity.from_hex(before["private_key"]), mine)
            ledger, listed = client.grants(), client.keys()
    shown = key.to_json() | {"url": values["url"], "profile": str(path)}
    shell.show(shown, _welcome(path, ledger, listed, {mine.public_key, recovery.public_key}))


def _welcome(
    path: Path, ledger: Ledger, listed: tuple[KeyInfo, ...], known: set[bytes]
) -> list[str]:
    labels = {key.public_key: key.label for key in listed}
    holders = ledger.holders(int(time.time() * 1000)).items()
    others = [
        key.hex()
        for key, held in holders
        if key not in known and any(grant.role == "owner" for grant in held)
    ]
    lines = [f"profile   {path}: a new key that owns the account"]
    lines += [f"owner     {mask_key(key)}  {labels.get(key) or '-'}" for key in others]
    if others:
        lines.append(
            "A key that is lost: memrelay rotate --revoke KEY (revokes it, new keys for all)"
        )
    return lines


def _collect_profile(shell: Shell, path: Path) -> dict[str, Any]:
    """Collect the new profile's other members: from arguments, the environment, the old profile."""
    args = shell.args
    values = {k: v for k, v in read_profile(path, missing_ok=True).items() if k in VARIABLES}
    values |= {k: shell.environ[v] for k, v in VARIABLES.items() if shell.environ.get(v)}
    given = {
        name: getattr(args, name) for name in ("url", "account_id", "relayer_key", "namespace")
    }
    values |= {name: value for name, value in given.items() if value}
    values |= {"custody": "auto", "allow_insecure": args.allow_insecure}
    values.pop("private_key", None)
    for name, hint in (("url", "the relayer"), ("account_id", "--account-id")):
        if not values.get(name):
            raise ConfigError(f"Name {hint}; it stands beside the recovery key.")
    return values


def _read_typed_key() -> str:
    """Return the recovery key from a person, unseen, or from standard input."""
    if not sys.stdin.isatty():
        return sys.stdin.read()
    warn(f"type the {LINES} lines of the recovery key; they are not shown")
    try:
        return "".join(getpass(f"line {number}: ") for number in range(1, LINES + 1))
    except EOFError:
        raise MemrelayError("No recovery key was given.") from None
