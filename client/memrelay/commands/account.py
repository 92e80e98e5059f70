"""The commands on accounts and keys: init, status, namespaces, receipts, trust, keys.

It does not own exit codes (`cli.py`). Keys for people are masked; a private key is
printed once, by the command that makes it.
"""

import os
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from memrelay.answers import Answer, rfc3339
from memrelay.client import SyncMemoryClient
from memrelay.commands.gateway import settings_table
from memrelay.commands.parsers import Adder
from memrelay.commands.shell import Shell
from memrelay.config import profile_path, read_profile, write_private
from memrelay.errors import ConfigError, MemrelayError, NotFound
from memrelay.gateway.settings import GatewaySettings
from memrelay.models import KeyInfo
from memrelay.sealed.keys import Identity, account_id_of, account_text, masked, public_key_bytes


def register(add: Adder) -> None:
    """Add the commands on accounts and keys."""
    _add_init(add("init", init, agent=False))
    add("status", status)
    add("namespaces", namespaces)
    add("receipts", receipts)
    add("trust", trust).add_argument("relayer_key", help="the relayer's public key")
    keys = add.group("keys", "Show, add or revoke the keys of the account.")
    keys("list", keys_list)
    _add_keys_add(keys("add", keys_add, namespace=False))
    revoke = keys("revoke", keys_revoke)
    revoke.add_argument("key", help="public key, its beginning, or label")


def _add_init(parser: ArgumentParser) -> None:
    parser.add_argument("url", nargs="?", help="the relayer (else MEMRELAY_URL)")
    parser.add_argument(
        "--custody",
        choices=("sealed", "managed"),
        default="sealed",
        help="sealed (default): the relayer cannot read without you; managed: it can",
    )
    parser.add_argument("--label", help="a name for the account")
    parser.add_argument("--token", help="what the relayer asks of newcomers (or MEMRELAY_TOKEN)")
    parser.add_argument("--relayer-key", metavar="HEX", help="insist on this relayer")
    parser.add_argument("--allow-insecure", action="store_true", help="plain http beyond here")
    parser.add_argument("--force", action="store_true", help="replace the profile")


def _add_keys_add(parser: ArgumentParser) -> None:
    parser.add_argument("--namespace", action="append", metavar="NAME", help="may be repeated")
    parser.add_argument("--whole-account", action="store_true", help="every namespace")
    parser.add_argument("--role", choices=("owner", "writer", "reader"), default="writer")
    parser.add_argument("--label", help="a name for the key")
    parser.add_argument("--expires-days", type=float, metavar="DAYS")
    parser.add_argument("--out", metavar="PATH", help="write the key's own profile there")


def init(shell: Shell) -> None:
    """Make keys and an account, and write the profile."""
    args, environ = shell.args, shell.environ
    url = args.url or environ.get("MEMRELAY_URL")
    if not url:
        raise ConfigError("Name the relayer: `memrelay init URL`, or set MEMRELAY_URL.")
    path = profile_path(args.profile, environ)
    if path.suffix == ".toml":
        raise ConfigError("A new profile is written as JSON; choose another name.")
    if path.exists() and not args.force:
        raise ConfigError(f"{path} exists; --force replaces it and keeps the old one beside it.")
    founder = Identity.generate()
    values: dict[str, Any] = {
        "url": url,
        "account_id": account_text(account_id_of(founder.public_key)),
        "private_key": founder.seed_hex(),
        "namespace": args.namespace or "default",
        "custody": args.custody,
        "allow_insecure": args.allow_insecure,
    }
    pending = path.with_name(f"{path.name}.new")
    # Written before the account is founded: a key that cannot be kept must not found anything.
    write_private(pending, values)
    try:
        account = SyncMemoryClient.create_account(
            url,
            custody=args.custody,
            label=args.label,
            token=args.token or environ.get("MEMRELAY_TOKEN"),
            identity=founder,
            relayer_key=args.relayer_key,
            allow_insecure=args.allow_insecure,
        )
        write_private(pending, {**values, "relayer_key": account.relayer_key})
        _keep_old(path)
        os.replace(pending, path)
    finally:
        with suppress(FileNotFoundError):
            pending.unlink()
    shown = account.to_json() | {"private_key": founder.seed_hex(), "url": url}
    shown["profile"] = str(path)
    shell.show(
        shown,
        [
            f"account   {account.account_id}",
            f"custody   {account.custody}",
            f"key       {masked(account.public_key)}",
            f"relayer   {masked(account.relayer_key)} at {url}",
            f"profile   {path}: the only copy of the private key; keep a backup",
        ],
    )


def _keep_old(path: Path) -> None:
    if path.exists():
        old = path.with_name(f"{path.name}.old")
        number = 1
        while old.exists():
            number += 1
            old = path.with_name(f"{path.name}.old{number}")
        os.replace(path, old)


def status(shell: Shell) -> None:
    """Show the relayer, the account, this key, the gateway's switches and the namespaces."""
    switches = GatewaySettings.of(settings_table(None, shell.args.profile, shell.environ))
    with shell.client() as client:
        settings = client.settings
        relayer = client.statement().relayer.hex()
        value = {
            "url": settings.url,
            "health": client.health(),
            "version": client.version(),
            "relayer_key": relayer,
            "pinned": settings.relayer_key == relayer,
            "account": client.account().to_json(),
            "public_key": settings.public_key,
            "namespace": settings.namespace,
            "gateway": {
                "auto_recall": switches.auto_recall,
                "auto_capture": switches.auto_capture,
            },
            "namespaces": _json(client.namespaces()),
        }
    shell.show(value, _status_lines(value))


def _status_lines(value: dict[str, Any]) -> Iterator[str]:
    health, version, account = value["health"], value["version"], value["account"]
    recall, capture = ("on" if on else "off" for on in value["gateway"].values())
    pin = "pinned" if value["pinned"] else "trusted at first contact"
    yield (
        f"relayer   {value['url']}: {health.get('status', 'answers')},"
        f" version {version.get('relayerVersion', 'unknown')}"
    )
    yield f"identity  {masked(value['relayer_key'])} ({pin})"
    yield f"account   {account['account_id']} ({account['custody']})"
    yield f"key       {masked(value['public_key'])} in the namespace {value['namespace']}"
    yield f"gateway   recall {recall}, capture {capture}"
    for entry in value["namespaces"]:
        yield f"namespace {entry['name']}: {entry['memory_count']} memories"


def namespaces(shell: Shell) -> None:
    """Show the namespaces and their sizes."""
    with shell.client() as client:
        found = client.namespaces()
    lines = [f"{e.name}  {e.memory_count} memories, {e.storage_bytes} bytes" for e in found]
    shell.show({"namespaces": _json(found)}, lines)


def receipts(shell: Shell) -> None:
    """Check the account's history against what was seen before."""
    with shell.client() as client:
        found = client.receipts()
    last = found[-1].seq if found else None
    shell.show(
        {"checked": len(found), "seq": last},
        [f"{len(found)} new receipts follow from those seen before"],
    )


def trust(shell: Shell) -> None:
    """Pin another relayer key in the profile."""
    key = shell.args.relayer_key.lower()
    public_key_bytes(key)
    path = shell.profile_path()
    if path.suffix == ".toml":
        raise ConfigError(f"Set relayer_key in {path} yourself.")
    values = read_profile(path, missing_ok=False)
    write_private(path, {**values, "relayer_key": key})
    shell.show({"relayer_key": key}, [f"{masked(key)} is trusted now"])


def keys_list(shell: Shell) -> None:
    """Show the keys of the account."""
    with shell.client() as client:
        found = client.keys()
    shell.show({"keys": _json(found)}, map(_key_line, found))


def _key_line(key: KeyInfo) -> str:
    scope = "whole account" if key.namespaces is None else ", ".join(key.namespaces)
    until = f", until {rfc3339(key.expires_at)}" if key.expires_at else ""
    state = ", revoked" if key.revoked else ""
    return f"{masked(key.public_key)}  {key.label or '-'}  {key.role} of {scope}{until}{state}"


def keys_add(shell: Shell) -> None:
    """Add a key that holds some namespaces, or the whole account."""
    args = shell.args
    if bool(args.namespace) == args.whole_account:
        raise ConfigError("Choose either --namespace (repeatable) or --whole-account.")
    out = Path(args.out).expanduser() if args.out else None
    if out is not None and out.exists():
        raise ConfigError(f"{out} exists.")
    with shell.client() as client:
        key = client.add_key(
            namespaces=None if args.whole_account else args.namespace,
            role=args.role,
            label=args.label,
            expires=timedelta(days=args.expires_days) if args.expires_days else None,
        )
        settings = client.settings
    if out is not None:
        own = replace(
            settings,
            private_key=key.private_key,
            namespace=key.namespaces[0] if key.namespaces else settings.namespace,
            relayer_key=key.relayer_key,
        )
        write_private(out, own.profile())
    shown = key.to_json() | ({"profile": str(out)} if out else {"private_key": key.private_key})
    scope = "the whole account" if key.namespaces is None else ", ".join(key.namespaces)
    place = f"profile      {out}" if out else f"private key  {key.private_key} (shown only now)"
    lines = [
        f"key          {masked(key.public_key)}, {key.role} of {scope}",
        f"account      {key.account_id}",
        f"relayer key  {key.relayer_key}",
        place,
    ]
    shell.show(shown, lines)


def keys_revoke(shell: Shell) -> None:
    """Withdraw a key."""
    with shell.client() as client:
        key = _find_key(shell.args.key, client.keys())
        revoked = client.revoke_key(key.public_key)
    shell.show(
        revoked.to_json(),
        [
            f"{masked(key.public_key)} is revoked",
            "It still opens copies of what it could read before.",
        ],
    )


def _find_key(wanted: str, keys: Sequence[KeyInfo]) -> KeyInfo:
    exact = [key for key in keys if wanted in {key.public_key, masked(key.public_key), key.label}]
    found = exact or [key for key in keys if len(wanted) >= 8 and key.public_key.startswith(wanted)]
    found = [key for key in found if not key.revoked] or found
    if not found:
        raise NotFound("No key has this name.", status=404, code="not_found")
    if len(found) > 1:
        raise MemrelayError("Several keys have this name; give the whole public key.")
    return found[0]


def _json(answers: Iterable[Answer]) -> list[dict[str, Any]]:
    return [answer.to_json() for answer in answers]
