"""Grants of an account, as an owner would send them."""

import json
from collections.abc import Sequence
from typing import Any

from relayer.sealed.grants import issue_grant, sign_join
from relayer.sealed.keys import Identity, NamespaceKey, Root
from relayer.sealed.objects import sign_object
from relayer.sealed.primitives import to_base64
from relayer.upkeep import provision
from tests.services import Bench


async def issue(
    bench: Bench,
    issuer: provision.NewKey,
    recipient: Identity,
    keys: Sequence[Root] | Sequence[NamespaceKey],
    **members: Any,
) -> bytes:
    """A grant at the account's next serial, right unless `members` say otherwise."""
    chain = await bench.storage.accounts.chain(issuer.account)
    return issue_grant(
        issuer.identity,
        **{
            "account": issuer.account,
            "serial": chain.serial + 1,
            "recipient": recipient.public_key,
            "role": "writer",
            "keys": keys,
            "created_ms": round(bench.clock().timestamp() * 1000),
            **members,
        },
    )


async def post(
    bench: Bench,
    issuer: provision.NewKey,
    recipient: Identity,
    signed: bytes,
    joined: dict[str, Any] | None = None,
) -> Any:
    """The relayer's answer to a grant with the recipient's agreement."""
    join = sign_join(
        recipient,
        **{
            "account": issuer.account,
            "issuer": issuer.identity.public_key,
            "relayer": bench.storage.identity.public_key,
            **(joined or {}),
        },
    )
    return await bench.storage.granting.grant(
        account=issuer.account,
        actor=issuer.identity.public_key,
        signed=signed,
        join=join,
        label="",
    )


async def entrust(bench: Bench, owner: provision.NewKey, roots: Sequence[Root]) -> None:
    """Make the relayer a custodian of the account."""
    relayer = bench.storage.identity
    await post(bench, owner, relayer, await issue(bench, owner, relayer, roots, role="custodian"))


def resigned(issuer: Identity, signed: bytes, *, box: bytes) -> bytes:
    """The grant with another's box, signed again."""
    members = json.loads(signed[:-64])
    del members["v"]
    return sign_object(issuer, "grant", {**members, "box": to_base64(box)})
