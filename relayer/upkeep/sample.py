"""A test of a few objects: does the blob store have what the database refers to?

Not here: looking at all of them (`check.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from relayer.database import accounts as account_rows
from relayer.database import blobs as rows
from relayer.errors import Corrupted
from relayer.sealed.envelope import blob_id
from relayer.sealed.keys import AccountId
from relayer.storage import Storage

ACCOUNTS_MAX: Final = 20  # the newest
MEMORIES_MAX: Final = 4  # of each, the newest; beside them its oldest object


@dataclass(frozen=True)
class Sample:
    """Numbers of the objects that were looked for, and of those not there or not readable."""

    looked: int = 0
    missing: int = 0


async def take(storage: Storage) -> Sample:
    """Look for a bounded number of objects, beside a running relayer too.

    Raises:
        Unavailable: the database or the store is away.
    """
    looked = missing = 0
    for account in await account_rows.newest_accounts(storage.database, ACCOUNTS_MAX):
        names = await _list_names(storage, account)
        looked += len(names)
        missing += len(await _find_missing(storage, account, names))
    return Sample(looked, missing)


async def _list_names(storage: Storage, account: AccountId) -> list[str]:
    """Return the names of an account's first grant and of its newest memories."""
    first = await account_rows.grants_of(storage.database, account, [1])
    memories = await rows.newest_names(storage.database, account, MEMORIES_MAX)
    return [*(blob_id(grant["object"]) for grant in first), *memories]


async def _find_missing(storage: Storage, account: AccountId, names: Sequence[str]) -> set[str]:
    """Return those that are neither in the store nor staged, and are still spoken of.

    What is altered cannot be read, and is as good as missing.
    """
    left = set(names)
    left -= await _sound(storage, account, left)
    if left:
        left -= (await rows.find(storage.database, account, sorted(left))).keys()
    if left:  # published, or erased, meanwhile
        left -= await _sound(storage, account, left)
        left &= set(await _list_names(storage, account))
    return left


async def _sound(storage: Storage, account: AccountId, names: set[str]) -> set[str]:
    """Return those that the store has, unaltered."""
    found = await storage.blobs.get_many(account, sorted(names))
    return {name for name, data in found.items() if not isinstance(data, Corrupted)}
