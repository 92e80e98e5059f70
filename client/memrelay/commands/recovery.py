"""The commands keys recovery and keys recover: a key on paper, and the way back with it.

It does not own the form of that key (`sealed/recovery.py`). It is shown once, on a terminal or as
the answer to a program, and written nowhere; nor is it taken from an argument.
"""

import os
import sys
from getpass import getpass
from pathlib import Path
from typing import Any

from memrelay.client import SyncMemoryClient
from memrelay.commands.account import keep_old
from memrelay.commands.parsers import Adder
from memrelay.commands.shell import Shell, warn
from memrelay.config import VARIABLES, Settings, profile_path, read_profile
from memrelay.errors import (
    ConfigError,
    MemrelayError,
    NotGranted,
    ServerError,
    TransportError,
)
from memrelay.models import KeyInfo, NewKey
from memrelay.private import write_private
from memrelay.sealed.keys import Identity, account_bytes, masked
from memrelay.sealed.recovery import LINES, recovered_identity, recovery_lines

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
    recover.add_argument("--label", help="a name for the new key")
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
        f"may have seen it: memrelay rotate --revoke {masked(shown['public_key'])}",
    ]


def keys_recover(shell: Shell) -> None:
    """Get back into an account with its recovery key: give this machine a new owner's key."""
    path = profile_path(shell.args.profile, shell.environ)
    if path.suffix == ".toml":
        raise ConfigError("A new profile is written as JSON; choose another name.")
    values = _known(shell, path)
    if path.exists() and not shell.args.force:
        raise ConfigError(f"{path} exists; --force replaces it and keeps the old one beside it.")
    recovery = recovered_identity(_typed(), account_bytes(values["account_id"]))
    mine = Identity.generate()
    pending = path.with_name(f"{path.name}.new")
    keep_old(pending)
    # Written before it is granted anything: a key that cannot be kept must not own anything.
    write_private(pending, {**values, "private_key": mine.seed_hex()})
    settings = Settings(**{**values, "private_key": recovery.seed_hex()})
    with shell.client(settings) as client:
        key = granted(client, pending, mine, namespaces=None, role="owner", label=shell.args.label)
        values |= {"private_key": mine.seed_hex(), "relayer_key": key.relayer_key}
        write_private(pending, values)
        keep_old(path)
        os.replace(pending, path)
        others = client.keys()
    shown = key.to_json() | {"url": values["url"], "profile": str(path)}
    shell.show(shown, _welcome(path, others, {key.public_key, recovery.public_key.hex()}))


def granted(client: SyncMemoryClient, kept: Path, identity: Identity, **wish: Any) -> NewKey:
    """Have a key granted what is wished; the file with it goes only if it certainly was not.

    Raises:
        MemrelayError: it was refused, or nobody knows; the message says so.
    """
    try:
        return client.add_key(identity=identity, **wish)
    except MemrelayError as error:
        if _never_granted(error):
            kept.unlink()
            raise
        raise MemrelayError(
            f"{error} The new key may be granted by now; it is kept in {kept}."
        ) from error


def _never_granted(error: MemrelayError) -> bool:
    refused = isinstance(error, ServerError) and 400 <= error.status < 500
    unsent = isinstance(error, TransportError) and not error.sent
    return refused or unsent or isinstance(error, ConfigError | NotGranted)


def _welcome(path: Path, keys: tuple[KeyInfo, ...], known: set[str]) -> list[str]:
    others = [
        key
        for key in keys
        if key.role == "owner" and not key.revoked and key.public_key not in known
    ]
    lines = [f"profile   {path}: a new key that owns the account"]
    lines += [f"owner     {masked(k.public_key)}  {k.label or '-'}" for k in others]
    if others:
        lines.append(
            "A key that is lost: memrelay rotate --revoke KEY (revokes it, new keys for all)"
        )
    return lines


def _known(shell: Shell, path: Path) -> dict[str, Any]:
    """What the profile to come holds beside its key: of arguments, the environment, the old one."""
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


def _typed() -> str:
    """Return the recovery key from a person, unseen, or from standard input."""
    if not sys.stdin.isatty():
        return sys.stdin.read()
    warn(f"type the {LINES} lines of the recovery key; they are not shown")
    try:
        return "".join(getpass(f"line {number}: ") for number in range(1, LINES + 1))
    except EOFError:
        raise MemrelayError("No recovery key was given.") from None
