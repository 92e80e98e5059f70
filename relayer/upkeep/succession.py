"""Replacing the relayer's own key, while it is stopped. Source: SPEC §16.

Not here: the key file (`identity.py`), the rules of grants (`sealed.grants`).

- The next key is durable before anything refers to it, and takes its place only when every managed
  account has it for a custodian. Interrupted anywhere, it goes on from there.
- An account that its grants keep from being handed over keeps no other one from it: it is managed
  no more, and named.
- Today's key signs the receipts of the handover: a chain is never signed by turns.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from relayer import identity as key_file
from relayer.clock import Clock, to_ms
from relayer.database import accounts as account_rows
from relayer.errors import BadRequest, Conflict, Corrupted, NotFound
from relayer.events import webhooks
from relayer.installation import key_path, open_storage, require
from relayer.logs import describe
from relayer.run_file import alone, is_served
from relayer.sealed.keys import AccountId, Identity, PublicKey
from relayer.sealed.primitives import CryptoError, random_key
from relayer.sealed.succession import SUCCESSIONS_MAX, name_next
from relayer.settings import Settings
from relayer.storage import Storage

log = logging.getLogger("relayer.succession")


@dataclass(frozen=True)
class Rotated:
    """A relayer's key and the one before it; `accounts` that are managed were handed over.

    Attributes:
        left: those that could not be, and why.
    """

    before: PublicKey
    now: PublicKey
    accounts: int
    left: Mapping[AccountId, str]


async def rotate(settings: Settings, clock: Clock) -> Rotated:
    """Give the relayer a new key that the old one names, and managed accounts to it.

    Raises:
        Conflict: a server runs on this data folder, or the key was replaced too often.
        IdentityError: the key file cannot be used.
        NotInstalled: there is no installation.
    """
    if is_served(settings.data_dir):
        raise Conflict(
            "Stop the relayer first, every replica of it: a running one would go on with the old"
            " key.",
            code="identity.in_use",
        )
    await require(settings)
    with alone(settings.data_dir):
        return await _rotate(settings, clock)


async def _rotate(settings: Settings, clock: Clock) -> Rotated:
    path, handed_over = key_path(settings), 0
    left: dict[AccountId, str] = {}
    async with open_storage(settings, clock, new=False, rotating=True) as storage:
        successor, named = _successor(settings, storage.identity, storage.succession, clock)
        for row in await account_rows.list_accounts(storage.database):
            account = AccountId(row["whole_id"])
            try:
                handed_over += await _hand_over(storage, account, successor, named)
            except (BadRequest, Corrupted, CryptoError) as error:
                extra = {"event": "identity.left", "exception": describe(error)}
                log.error("an account could not be handed over", extra=extra)
                left[account] = str(error)
        await webhooks.hand_over(storage.database, storage.identity, successor)
    key_file.replace_identity(path)
    return Rotated(storage.identity.public_key, successor.public_key, handed_over, left)


async def _hand_over(
    storage: Storage, account: AccountId, successor: Identity, named: bytes
) -> bool:
    """Hand an account over to the successor; true if it was managed.

    Raises:
        BadRequest, Corrupted, CryptoError: its grants do not let it be handed over.
    """
    with suppress(NotFound):  # it was erased
        return await storage.granting.hand_over(account, successor, named)
    return False


def _successor(
    settings: Settings, identity: Identity, succession: tuple[bytes, ...], clock: Clock
) -> tuple[Identity, bytes]:
    """Return the next key and the object that names it: those that wait, or new ones."""
    path = key_path(settings)
    waiting = key_file.next_path(path)
    if not waiting.exists():
        if len(succession) >= SUCCESSIONS_MAX:
            raise Conflict("This relayer's key was replaced too often.", code="identity.too_many")
        fresh = Identity(random_key())
        named = name_next(identity, fresh.public_key, created_ms=to_ms(clock()))
        key_file.write_next(path, fresh.seed, (*succession, named))
    named = key_file.load_succession(waiting)[-1]
    return key_file.load_identity(waiting), named
