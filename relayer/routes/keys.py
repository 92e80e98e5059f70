"""Our own routes on an account's keys: list, grant, revoke, rotate.

Not here: what these do (`tenants/granting.py`, `tenants/rotation.py`).
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import JSONBody
from msgspec import Meta, field

from relayer.clock import rfc3339_ms
from relayer.http import bodies
from relayer.http.checks import REVOKING, WEIGHT
from relayer.memories.opening import Caller
from relayer.routes import shapes
from relayer.routes.arguments import Answer, check_relayer, signed_object
from relayer.sealed.keys import Identity, Namespace
from relayer.sealed.primitives import to_base64
from relayer.settings import Limits
from relayer.tenants.access import Access
from relayer.tenants.accounts import Accounts
from relayer.tenants.granting import Granting
from relayer.tenants.rotation import Choice, NamespaceProgress, Progress, Rotations


class GrantBody(bodies.Change):
    """POST /v1/grants."""

    grant: str
    join: str
    label: bodies.Label = ""


class RevocationBody(bodies.Change):
    """POST /v1/revocations."""

    revocation: str


class RotationBody(bodies.Change):
    """POST /v1/rotations."""

    grants: Annotated[list[str], Meta(max_length=Limits.rotation_grants_max)] = field(
        default_factory=list
    )
    revocations: Annotated[list[str], Meta(max_length=Limits.rotation_revocations_max)] = field(
        default_factory=list
    )
    reseal: (
        Literal["revoked", "all", "none"]
        | Annotated[list[str], Meta(min_length=1, max_length=Limits.page_limit_max)]
    ) = "revoked"


@get("/keys", opt={REVOKING: True})
async def list_keys(access: NamedDependency[Access], accounts: NamedDependency[Accounts]) -> Answer:
    """The account's keys as their grants say."""
    return {"keys": await accounts.listed_keys(access)}


@get("/grants", opt={REVOKING: True})
async def list_grants(
    access: NamedDependency[Access], accounts: NamedDependency[Accounts]
) -> Answer:
    """Signed grants and revocations the key may see."""
    listed = await accounts.listed_grants(access)
    return {
        "grants": [_grant(entry) for entry in listed],
        "grant_serial": access.serial,
        "succession": [to_base64(e["succession"]) for e in listed if e["succession"] is not None],
    }


def _grant(entry: Mapping[str, Any]) -> dict[str, Any]:
    """One signed grant or revocation."""
    shape = {name: entry[name] for name in ("kind", "serial", "label")}
    return shape | {"object": to_base64(entry["object"])}


@post("/grants", opt={WEIGHT: 3})
async def add_grant(
    data: JSONBody[GrantBody],
    access: NamedDependency[Access],
    granting: NamedDependency[Granting],
    identity: NamedDependency[Identity],
) -> Answer:
    """Give a key that agreed to join something to read or write."""
    check_relayer(data.relayer, identity)
    access.require_owner()
    grant, receipt = await granting.grant(
        account=access.account,
        actor=access.key,
        signed=signed_object(data.grant, "grant"),
        join=signed_object(data.join, "join"),
        label=data.label,
    )
    return {"grant": str(grant.grant), "serial": grant.serial, "receipt": to_base64(receipt)}


@post("/revocations", opt={WEIGHT: 3, REVOKING: True})
async def add_revocation(
    data: JSONBody[RevocationBody],
    access: NamedDependency[Access],
    granting: NamedDependency[Granting],
    identity: NamedDependency[Identity],
) -> Answer:
    """Take everything from a key that it was given so far."""
    check_relayer(data.relayer, identity)
    access.require_owner()
    revocation, receipt = await granting.revoke(
        account=access.account,
        actor=access.key,
        signed=signed_object(data.revocation, "revocation"),
    )
    return {
        "recipient": revocation.recipient.hex(),
        "serial": revocation.serial,
        "receipt": to_base64(receipt),
    }


@post("/rotations", opt={WEIGHT: 10, REVOKING: True})
async def rotate(
    data: JSONBody[RotationBody],
    access: NamedDependency[Access],
    rotations: NamedDependency[Rotations],
    identity: NamedDependency[Identity],
) -> Answer:
    """Begin the next epoch, without the keys that are revoked with it."""
    check_relayer(data.relayer, identity)
    rotated = await rotations.rotate(
        access,
        revocations=[signed_object(text, "revocations") for text in data.revocations],
        grants=[signed_object(text, "grants") for text in data.grants],
        reseal=reseal_of(data),
    )
    return {
        "epoch": rotated.epoch,
        "serial": rotated.serial,
        "receipts": shapes.receipts(rotated.receipts),
    }


def reseal_of(body: RotationBody) -> Choice | list[Namespace]:
    """What is to be sealed anew.

    Raises:
        BadRequest: a namespace is refused by SPEC §3.
    """
    if isinstance(body.reseal, list):
        return [bodies.namespace_of(name) for name in body.reseal]
    return body.reseal


@get("/rotations", opt={REVOKING: True})
async def rotation_progress(
    caller: NamedDependency[Caller], rotations: NamedDependency[Rotations]
) -> Answer:
    """How far memories are under the newest epoch; keys that come along are lent for that."""
    return _rotation(await rotations.progress(caller.access))


def _rotation(progress: Progress) -> dict[str, Any]:
    """How far an account has followed to its newest epoch."""
    entries = [_namespace_rotation(entry) for entry in progress.namespaces]
    names = ("total", "done", "remaining", "waiting_for_keys")
    return {
        "epoch": progress.epoch,
        "started_at": rfc3339_ms(progress.started_ms),
        **{name: sum(entry[name] for entry in entries) for name in names},
        "older": progress.older,
        "unrestored": progress.unrestored,
        "blocked": [
            {"id": str(one.id), "namespace": one.namespace, "problem": one.problem}
            for one in progress.blocked
        ],
        "namespaces": entries,
    }


def _namespace_rotation(entry: NamespaceProgress) -> dict[str, Any]:
    return {
        "name": entry.name,
        "total": entry.total,
        "done": entry.done,
        "remaining": entry.remaining,
        "waiting_for_keys": entry.waiting_for_keys,
    }


HANDLERS: Final = (list_keys, list_grants, add_grant, add_revocation, rotate, rotation_progress)
