"""Finds the account or the key that the beginning of its id names.

Not here: which beginnings are shown (`tables.py`).
"""

import re
from collections.abc import Sequence
from typing import Final

import click

from relayer.commands.options import account_of, public_key_of
from relayer.database import accounts as statements
from relayer.errors import NotFound
from relayer.sealed.keys import AccountId, PublicKey
from relayer.storage import Storage
from relayer.tables import ID_DIGITS_MIN

_BEGINNING: Final = re.compile(rf"[0-9a-f]{{{ID_DIGITS_MIN},63}}")


def is_beginning(text: str) -> bool:
    """Return whether a text may be the beginning of an id, not a whole one."""
    return _BEGINNING.fullmatch(text.lower().removeprefix("0x")) is not None


async def find_account(storage: Storage, text: str) -> AccountId:
    """Return the account of an id, or of a beginning that no other account has.

    Raises:
        NotFound: no account begins so.
        click.BadParameter: several do, or it is neither.
    """
    if not is_beginning(text):
        return account_of(text)
    rows = await statements.list_accounts(storage.database)
    found = _choose([row["whole_id"].hex() for row in rows], text, "account")
    return AccountId(bytes.fromhex(found))


async def find_key(storage: Storage, account: AccountId, text: str) -> PublicKey:
    """Return the key of this account by its hex digits, or by a beginning of them.

    Raises:
        NotFound: no key of the account begins so.
        click.BadParameter: several do, or it is neither.
    """
    if not is_beginning(text):
        return public_key_of(text)
    keys = await storage.accounts.all_keys(account)
    return public_key_of(_choose([entry["public_key"] for entry in keys], text, "key"))


def _choose(ids: Sequence[str], text: str, noun: str) -> str:
    beginning = text.lower().removeprefix("0x")
    found = [one for one in ids if one.startswith(beginning)]
    if not found:
        raise NotFound(f"No {noun} begins with {text}.")
    if len(found) > 1:
        raise click.BadParameter(f"several begin with {text}: give more digits of the {noun}")
    return found[0]
