"""The command line's changes to accounts and keys, beside a running server or without one.

Not here: printing (`__main__.py`) and the rules of grants (`tenants/granting.py`, `sealed.grants`).

- On a managed account the relayer, as custodian, issues grants; on a sealed one only an owner's
  key can, used in memory and written nowhere.
"""

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from relayer.clock import Clock, rfc3339, to_ms
from relayer.database import accounts as statements
from relayer.errors import BadRequest, NotAllowed
from relayer.sealed.grants import (
    Chain,
    Role,
    issue_grant,
    issue_revocation,
    oldest_epoch,
    open_grant,
    sign_join,
)
from relayer.sealed.keys import (
    AccountId,
    Identity,
    Namespace,
    NamespaceKey,
    PublicKey,
    Root,
    account_id,
    account_text,
)
from relayer.sealed.primitives import random_key, to_base64
from relayer.storage import Storage, closing_on


@dataclass(frozen=True)
class NewKey:
    """A key that was just made; its seed is shown once."""

    account: AccountId
    identity: Identity = field(repr=False)
    custody: str


async def create_account(
    storage: Storage, *, label: str, custody: Literal["managed", "sealed"], clock: Clock
) -> NewKey:
    """Create an account with a fresh founder key; the relayer is custodian if it is managed."""
    founder, root = Identity(os.urandom(32)), Root(1, random_key())
    account, now_ms = account_id(founder.public_key), to_ms(clock())
    grants = [
        issue_grant(
            founder,
            account=account,
            serial=1,
            recipient=founder.public_key,
            role="owner",
            keys=[root],
            created_ms=now_ms,
        )
    ]
    if custody == "managed":
        grants.append(
            issue_grant(
                founder,
                account=account,
                serial=2,
                recipient=storage.identity.public_key,
                role="custodian",
                keys=[root],
                created_ms=now_ms,
            )
        )
    await storage.granting.create(founder=founder.public_key, grants=grants, label=label)
    return NewKey(account, founder, custody)


async def add_key(
    storage: Storage,
    *,
    account: AccountId,
    namespaces: Sequence[Namespace],
    role: Role,
    label: str,
    expires_at: datetime | None,
    owner: Identity | None,
    clock: Clock,
) -> NewKey:
    """Create a key with a grant to these namespaces, or (none named) to the whole account.

    Raises:
        NotAllowed: a sealed account, and no owner's key was given.
        BadRequest: an owner of named namespaces only.
    """
    if role == "owner" and namespaces:
        raise BadRequest("An owner owns the whole account: leave --namespaces out.")
    chain = await storage.accounts.chain(account)
    issuer, roots = _issuer(storage, chain, owner)
    identity = Identity(os.urandom(32))
    keys: Sequence[Root] | Sequence[NamespaceKey] = roots
    if namespaces:
        keys = [root.namespace_key(account, n) for n in namespaces for root in roots]
    signed = issue_grant(
        issuer,
        account=account,
        serial=chain.serial + 1,
        recipient=identity.public_key,
        role=role,
        keys=keys,
        created_ms=to_ms(clock()),
        expires_ms=to_ms(expires_at),
        grant=uuid.uuid4(),
    )
    join = sign_join(
        identity,
        account=account,
        issuer=issuer.public_key,
        relayer=storage.identity.public_key,
    )
    await storage.granting.grant(
        account=account, actor=issuer.public_key, signed=signed, join=join, label=label
    )
    return NewKey(account, identity, storage.accounts.custody(chain))


async def revoke_key(
    storage: Storage,
    *,
    account: AccountId,
    key: PublicKey,
    owner: Identity | None,
    clock: Clock,
) -> None:
    """Withdraw everything a key was given; it counts from the next request on.

    Raises:
        NotAllowed: a sealed account, and no owner's key was given.
        BadRequest: the account never had that key.
    """
    chain = await storage.accounts.chain(account)
    if key not in chain.grants:
        raise BadRequest("The account has no such key.", code="key.unknown")
    issuer, _ = _issuer(storage, chain, owner)
    signed = issue_revocation(
        issuer,
        account=account,
        serial=chain.serial + 1,
        recipient=key,
        created_ms=to_ms(clock()),
    )
    await storage.granting.revoke(account=account, actor=issuer.public_key, signed=signed)


def _issuer(storage: Storage, chain: Chain, owner: Identity | None) -> tuple[Identity, list[Root]]:
    """Return the identity that may issue here, and the roots of every epoch that it holds."""
    if owner is not None:
        grants = [
            g
            for g in chain.grants.get(owner.public_key, [])
            if g.role == "owner" and g.serial > chain.revoked_at.get(owner.public_key, 0)
        ]
        issuer = owner
    else:
        grants, issuer = storage.accounts.custodian_grants(chain), storage.identity
    if not grants:
        raise NotAllowed(
            "That key owns no grant of this account."
            if owner is not None
            else "This account is sealed: only its owner's key can do that.",
            code="owner_key_required",
        )
    opened = [key for grant in grants for key in open_grant(grant, issuer)]
    roots = {key.epoch: key for key in opened if isinstance(key, Root)}
    return issuer, [roots[epoch] for epoch in sorted(roots) if epoch >= oldest_epoch(grants)]


async def erase_account(storage: Storage, *, account: AccountId, clock: Clock) -> dict[str, Any]:
    """Erase an account in the operator's name; the receipt's actor is the relayer.

    Raises:
        NotFound: there is no such account, or it was erased.
    """
    closing = closing_on(storage, clock)
    closed = await closing.close_account(account, storage.identity.public_key)
    return {
        "account_id": account_text(account),
        "closed": True,
        "erased": closed.memories,
        "pending": closed.pending,
        "receipt": to_base64(closed.receipt),
    }


async def list_accounts(storage: Storage) -> list[dict[str, Any]]:
    """Return every account."""
    return [
        {
            "account_id": account_text(AccountId(row["whole_id"])),
            "label": row["label"],
            "custody": storage.accounts.custody(
                await storage.accounts.chain(AccountId(row["whole_id"]))
            ),
            "memory_count": row["memory_count"],
            "storage_bytes": row["storage_bytes"],
            "index_bytes": row["index_bytes"],
            "created_at": rfc3339(row["created_at"]),
        }
        for row in await statements.list_accounts(storage.database)
    ]
