"""The commands on an account: init, status, receipts, trust.

It does not own its keys (`keys.py`) or exit codes (`cli.py`). Keys for people are masked; a private
key is printed once, by the command that makes it.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from typing import Any

from memrelay.answers import Answer
from memrelay.commands.new_account import Wish, choose_data_folder, found_account
from memrelay.commands.parsers import Adder, parse_nonempty
from memrelay.commands.progress import ProgressLine
from memrelay.commands.shell import Shell
from memrelay.config import profile_path, read_profile, trust_store_path
from memrelay.errors import ConfigError
from memrelay.gateway.settings import GatewaySettings, settings_table
from memrelay.plurals import format_count
from memrelay.sealed.keys import mask_key, public_key_bytes
from memrelay.secure_files import write_private
from memrelay.trust_store import TrustStore

ADVICE = (
    "advice    `memrelay keys recovery` prints a key to keep on paper; without any key that owns"
    " the account, a sealed one cannot be read again by anybody"
)


def register(add: Adder) -> None:
    """Add the commands on an account."""
    _add_init(add("init", init, agent=False))
    add("status", status)
    add("receipts", receipts)
    add("trust", trust).add_argument("relayer_key", help="the relayer's public key")


def _add_init(parser: ArgumentParser) -> None:
    parser.add_argument("url", nargs="?", help="the relayer (else MEMRELAY_URL)")
    parser.add_argument(
        "--local", action="store_true", help="a relayer on this machine, started when it is needed"
    )
    parser.add_argument(
        "--data-dir", type=parse_nonempty, metavar="PATH", help="with --local: where its data is"
    )
    parser.add_argument(
        "--custody",
        choices=("sealed", "managed"),
        default="sealed",
        help="sealed (default): the relayer cannot read without you; managed: it can",
    )
    parser.add_argument("--label", help="a name for the account, and its first key (user@machine)")
    parser.add_argument("--token", help="what it asks of newcomers (better: MEMRELAY_TOKEN)")
    parser.add_argument("--relayer-key", metavar="HEX", help="insist on this relayer")
    parser.add_argument("--allow-insecure", action="store_true", help="plain http beyond here")
    parser.add_argument("--force", action="store_true", help="replace the profile")


def init(shell: Shell) -> None:
    """Make keys and an account, and write the profile."""
    args = shell.args
    path = profile_path(args.profile, shell.environ)
    wish = _read_wish(shell)
    account, founder = found_account(shell, path, wish, replaces=args.force)
    shown = account.to_json() | {"private_key": founder.seed_hex(), "url": wish.url}
    shown["profile"] = str(path)
    shell.show(
        shown,
        [
            f"account   {account.account_id}",
            f"custody   {account.custody}",
            f"key       {mask_key(account.public_key)}",
            f"relayer   {mask_key(account.relayer_key)} at {wish.url}",
            f"profile   {path}: the only copy of the private key; keep a backup",
            ADVICE,
        ],
    )


def _read_wish(shell: Shell) -> Wish:
    """Return the account that is asked for, at the relayer that is named or this user's own.

    Raises:
        ConfigError: there is none, or both.
    """
    args = shell.args
    others: dict[str, Any] = {
        "custody": args.custody,
        "label": args.label,
        "namespace": args.namespace or "default",
        "relayer_key": args.relayer_key,
        "allow_insecure": args.allow_insecure,
    }
    if args.local:
        if args.url:
            raise ConfigError("Name a relayer, or say --local; not both.")
        return Wish.here(choose_data_folder(shell), **others)
    if args.data_dir:
        raise ConfigError("--data-dir is for --local; another relayer has its own.")
    url: str | None = args.url or shell.environ.get("MEMRELAY_URL")
    if not url:
        raise ConfigError(
            "Name the relayer: `memrelay init URL`, or set MEMRELAY_URL."
            " For one of your own on this machine: `memrelay init --local`."
        )
    return Wish(url, **others)


def status(shell: Shell) -> None:
    """Show the relayer, the account, this key and the namespaces."""
    switches = GatewaySettings.of(settings_table(None, shell.args.profile, shell.environ))
    with shell.client() as client:
        settings = client.settings
        relayer = client.statement().relayer.hex()
        value = {
            "url": settings.url,
            "health": client.health(),
            "version": client.version(),
            "relayer_key": relayer,
            "pinned": settings.relayer_key is not None,
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
    yield f"identity  {mask_key(value['relayer_key'])} ({pin})"
    yield f"account   {account['account_id']} ({account['custody']})"
    yield f"key       {mask_key(value['public_key'])} in the namespace {value['namespace']}"
    yield f"gateway   recall {recall}, capture {capture}"
    for entry in value["namespaces"]:
        yield f"namespace {entry['name']}: {format_count(entry['memory_count'], 'memory')}"


def receipts(shell: Shell) -> None:
    """Check the account's history against what was seen before."""
    with shell.client() as client, ProgressLine(sys.stderr, "followed", "receipt") as progress:
        found = client.receipts(progress=progress)
        seq = client.receipt_seq
    shell.show(
        {"checked": len(found), "seq": seq},
        [f"{format_count(len(found), 'new receipt')} followed, up to number {seq}"],
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
    if isinstance(account_id := values.get("account_id"), str):  # else the environment names it
        TrustStore(trust_store_path(path, account_id)).pin(key, before=values.get("relayer_key"))
    shell.show({"relayer_key": key}, [f"{mask_key(key)} is trusted now"])


def _json(answers: Iterable[Answer]) -> list[dict[str, Any]]:
    return [answer.to_json() for answer in answers]
