"""`relayer account` and `relayer key`: make accounts and keys, list them, take them away.

Not here: what the commands do (`upkeep/provision.py`).
"""

import os
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from relayer.clock import rfc3339, utc_now
from relayer.commands.failures import Exit
from relayer.commands.ids import find_account, find_key
from relayer.commands.options import (
    account_option,
    json_option,
    run,
    settings_of,
    show,
    storage_options,
    table,
)
from relayer.commands.parsers import Group
from relayer.installation import as_found, open_storage
from relayer.run_file import find_url
from relayer.sealed.grants import Role
from relayer.sealed.keys import (
    Identity,
    Namespace,
    PublicKey,
    account_text,
    parse_namespace,
)
from relayer.sealed.primitives import CryptoError
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.tenants.accounts import KeyEntry
from relayer.upkeep import provision

_SPAN: Final = re.compile(r"(?:in )?([1-9][0-9]{0,4}) ?(?:([wdhm])|(week|day|hour|minute)s?)")
_UNITS: Final = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
}
EXPIRY_FORMS: Final = '90d, 12h, 4w, "in 2 weeks", 2026-12-31 or "2026-12-31 14:00"'


@click.group(cls=Group)
def account() -> None:
    """Make, list and erase accounts."""


@account.command("create")
@storage_options
@click.option("--label", default="", help="A name for people.")
@click.option(
    "--custody",
    type=click.Choice(["managed", "sealed"]),
    default="sealed",
    show_default=True,
    help="managed: the relayer may use the keys (MemWal's clients need it); sealed: clients only.",
)
@json_option
def account_create(label: str, custody: Any, as_json: bool, **values: Any) -> None:
    """Create an account, and print its founder key, once."""
    settings = settings_of(values)

    async def work() -> dict[str, Any]:
        async with open_storage(settings) as storage:
            new = await provision.create_account(
                storage, label=label, custody=custody, clock=utc_now
            )
            return _key_json(new, settings, storage) | {"label": label}

    data = run(work())
    show(data, as_json, lambda: _key_text(data))


@account.command("list")
@storage_options
@json_option
def account_list(as_json: bool, **values: Any) -> None:
    """List the accounts of this relayer."""

    async def work() -> list[dict[str, Any]]:
        async with as_found(settings_of(values)) as storage:
            return await provision.list_accounts(storage)

    accounts = run(work())
    show({"accounts": accounts}, as_json, lambda: table(accounts))


@account.command("erase")
@storage_options
@click.argument("account_text_", metavar="ACCOUNT")
@click.option("--yes", is_flag=True, help="Do it; without this nothing is erased.")
@json_option
def account_erase(account_text_: str, yes: bool, as_json: bool, **values: Any) -> None:
    """Erase an account with everything in it, for good.

    No key of it is needed. Its keys are unknown at once, on every running relayer. What it stored
    goes now, unless it is too much: then the rest goes in the background of a running relayer. Its
    id is never founded again. Backups of the database and of the blobs are not touched.
    """
    if not yes:
        raise Exit(2, "This cannot be undone. Say --yes to erase the account.")

    async def work() -> dict[str, Any]:
        async with open_storage(settings_of(values), new=False) as storage:
            return await provision.erase_account(
                storage, account=await find_account(storage, account_text_), clock=utc_now
            )

    data = run(work())
    rest = "; the rest goes in the background" if data["pending"] else ""
    noun = "memory" if data["erased"] == 1 else "memories"
    done = f"the account is erased, {data['erased']} {noun} with it{rest}"
    show(data, as_json, lambda: done)


@click.group(cls=Group)
def key() -> None:
    """Make, list and revoke the keys of an account."""


owner_option = click.option(
    "--owner-key-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="File with the owner's private key, 64 hex digits; or RELAYER_OWNER_KEY.",
)


@key.command("add")
@storage_options
@account_option
@click.option("--namespaces", default=None, help="Comma-separated; without it, the whole account.")
@click.option(
    "--role",
    type=click.Choice(["reader", "writer", "owner"]),
    default="writer",
    show_default=True,
)
@click.option("--label", default="", help="A name for people.")
@click.option("--expires", default=None, help=f"{EXPIRY_FORMS}; RFC 3339, too.")
@owner_option
@json_option
def key_add(
    account_text_: str,
    namespaces: str | None,
    role: Role,
    label: str,
    expires: str | None,
    owner_key_file: Path | None,
    as_json: bool,
    **values: Any,
) -> None:
    """Make a key with a grant, and print it, once."""
    settings, named = settings_of(values), _namespaces(namespaces)
    expires_at = parse_expiry(expires, utc_now())
    granted = {
        "label": label,
        "role": role,
        "namespaces": list(named) or None,
        "expires_at": rfc3339(expires_at),
    }

    async def work() -> dict[str, Any]:
        async with open_storage(settings, new=False) as storage:
            new = await provision.add_key(
                storage,
                account=await find_account(storage, account_text_),
                namespaces=named,
                role=role,
                label=label,
                expires_at=expires_at,
                owner=_owner(owner_key_file),
                clock=utc_now,
            )
            return _key_json(new, settings, storage) | granted

    data = run(work())
    scope = ", ".join(named) or "the whole account"
    shown = data | {"namespaces": scope, "expires_at": data["expires_at"] or "never"}
    show(data, as_json, lambda: _key_text(shown))


@key.command("list")
@storage_options
@account_option
@json_option
def key_list(account_text_: str, as_json: bool, **values: Any) -> None:
    """List the keys of an account."""

    async def work() -> list[KeyEntry]:
        async with as_found(settings_of(values)) as storage:
            return await storage.accounts.all_keys(await find_account(storage, account_text_))

    keys = run(work())
    show({"keys": keys}, as_json, lambda: table(keys))


@key.command("revoke")
@storage_options
@account_option
@click.option("--key", "key_text", required=True, metavar="PUBLIC_KEY")
@owner_option
@json_option
def key_revoke(
    account_text_: str, key_text: str, owner_key_file: Path | None, as_json: bool, **values: Any
) -> None:
    """Revoke all that a key was granted, from its next request on."""

    async def work() -> PublicKey:
        async with open_storage(settings_of(values), new=False) as storage:
            account = await find_account(storage, account_text_)
            public_key = await find_key(storage, account, key_text)
            await provision.revoke_key(
                storage,
                account=account,
                key=public_key,
                owner=_owner(owner_key_file),
                clock=utc_now,
            )
            return public_key

    revoked = run(work()).hex()
    note = "Stolen copies of what it could read stay readable to it until the account is rotated."
    data = {"public_key": revoked, "revoked": True, "note": note}
    show(data, as_json, lambda: f"revoked {revoked}\n{note}")


def _namespaces(text: str | None) -> list[Namespace]:
    """Return the namespaces of a list with commas between them; none where it was not given.

    Raises:
        click.BadParameter: one is empty, or cannot be a name: a variable that is not set must not
            give the whole account away.
    """
    try:
        return [] if text is None else [parse_namespace(name) for name in text.split(",")]
    except CryptoError as error:
        raise click.BadParameter(f"--namespaces: {error}") from None


def parse_expiry(text: str | None, now: datetime) -> datetime | None:
    """Return the moment that a span or a time names, as `memrelay` reads it, in the local zone.

    Raises:
        click.BadParameter: it is neither, or in the past.
    """
    if text is None:
        return None
    if match := _SPAN.fullmatch(text.lower()):
        return now + int(match[1]) * _UNITS[(match[2] or match[3])[0]]
    try:
        moment = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise click.BadParameter(f"--expires is {EXPIRY_FORMS}") from None
    if moment <= now:
        raise click.BadParameter(f"--expires is over: {rfc3339(moment)}")
    return moment


def _owner(file: Path | None) -> Identity | None:
    try:
        text = file.read_text() if file else os.environ.get("RELAYER_OWNER_KEY", "")
        return Identity(bytes.fromhex(text.strip())) if text.strip() else None
    except OSError as error:
        raise click.BadParameter(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, CryptoError):
        raise click.BadParameter("the owner's key is 64 hex digits") from None


def _key_json(new: provision.NewKey, settings: Settings, storage: Storage) -> dict[str, Any]:
    return {
        "account_id": account_text(new.account),
        "public_key": new.identity.public_key.hex(),
        "private_key": new.identity.seed.hex(),
        "server_url": find_url(settings.data_dir),
        "relayer_key": storage.identity.public_key.hex(),
        "custody": new.custody,
    }


def _key_text(data: dict[str, Any]) -> str:
    shown = [f"{name:12} {value}" for name, value in data.items() if value not in (None, "")]
    return "\n".join([*shown, "", "The private key is shown once and stored nowhere: keep it."])
