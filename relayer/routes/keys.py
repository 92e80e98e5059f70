"""Our own routes on an account's keys: list, grant, revoke, rotate.

Not here: what these do (`tenants/granting.py`, `tenants/rotation.py`).
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypedDict

from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import JSONBody
from msgspec import Meta, field

from relayer.clock import rfc3339_ms
from relayer.http import bodies
from relayer.http.checks import REVOKING, WEIGHT
from relayer.memories.opener import Caller
from relayer.routes import shapes
from relayer.routes.arguments import decode_signed_object
from relayer.sealed.keys import Identity, Namespace
from relayer.sealed.primitives import to_base64
from relayer.settings import Limits
from relayer.tenants.accounts import Access, Accounts, KeyEntry
from relayer.tenants.granting import Granting
from relayer.tenants.rotation import Choice, Rotations
from relayer.tenants.rotation_progress import NamespaceProgress, Problem, Progress


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


class KeysAnswer(TypedDict):
    """The account's keys; nobody signed this list."""

    keys: list[KeyEntry]


class GrantObject(TypedDict):
    """One signed grant or revocation."""

    kind: Literal["grant", "revoke"]
    serial: int
    label: str
    object: shapes.Base64


class GrantsAnswer(TypedDict):
    """Signed grants and revocations, and the succession that custodians' keys rest on."""

    grants: list[GrantObject]
    grant_serial: int
    succession: list[shapes.Base64]


class GrantAnswer(TypedDict):
    """A grant that counts now."""

    grant: shapes.Id
    serial: int
    receipt: shapes.Base64


class RevocationAnswer(TypedDict):
    """A revocation that counts now."""

    recipient: shapes.Hex
    serial: int
    receipt: shapes.Base64


class RotationAnswer(TypedDict):
    """The epoch that has begun."""

    epoch: int
    serial: int
    receipts: list[shapes.Base64]


class ResealCounts(TypedDict):
    """Numbers of memories, earlier revisions and episodes, in all and under the newest epoch."""

    total: int
    done: int
    remaining: int
    waiting_for_keys: int


class NamespaceReseal(ResealCounts):
    """The progress of one namespace."""

    name: str


class BlockedItem(TypedDict):
    """A memory or episode that cannot be sealed anew for now."""

    id: shapes.Id
    namespace: str
    problem: Problem


class ProgressAnswer(ResealCounts):
    """The account's progress to its newest epoch."""

    epoch: int
    started_at: shapes.Time
    older: int
    unrestored: bool
    blocked: list[BlockedItem]
    namespaces: list[NamespaceReseal]


@get("/keys", opt={REVOKING: True})
async def list_keys(
    access: NamedDependency[Access], accounts: NamedDependency[Accounts]
) -> KeysAnswer:
    """Return the account's keys as their grants say."""
    return {"keys": await accounts.list_keys(access)}


@get("/grants", opt={REVOKING: True})
async def list_grants(
    access: NamedDependency[Access], accounts: NamedDependency[Accounts]
) -> GrantsAnswer:
    """Return signed grants and revocations the key may see."""
    listed = await accounts.list_grants(access)
    return {
        "grants": [_grant(entry) for entry in listed],
        "grant_serial": access.serial,
        "succession": [to_base64(e["succession"]) for e in listed if e["succession"] is not None],
    }


def _grant(entry: Mapping[str, Any]) -> GrantObject:
    """Return one signed grant or revocation."""
    return {
        "kind": entry["kind"],
        "serial": entry["serial"],
        "label": entry["label"],
        "object": to_base64(entry["object"]),
    }


@post("/grants", opt={WEIGHT: 3})
async def add_grant(
    data: JSONBody[GrantBody],
    access: NamedDependency[Access],
    granting: NamedDependency[Granting],
    identity: NamedDependency[Identity],
) -> GrantAnswer:
    """Give a key that agreed to join something to read or write."""
    bodies.check_relayer(data.relayer, identity)
    access.require_owner()
    grant, receipt = await granting.grant(
        account=access.account,
        actor=access.key,
        signed=decode_signed_object(data.grant, "grant"),
        join=decode_signed_object(data.join, "join"),
        label=data.label,
    )
    return {"grant": str(grant.grant), "serial": grant.serial, "receipt": to_base64(receipt)}


@post("/revocations", opt={WEIGHT: 3, REVOKING: True})
async def add_revocation(
    data: JSONBody[RevocationBody],
    access: NamedDependency[Access],
    granting: NamedDependency[Granting],
    identity: NamedDependency[Identity],
) -> RevocationAnswer:
    """Take everything from a key that it was given so far."""
    bodies.check_relayer(data.relayer, identity)
    access.require_owner()
    revocation, receipt = await granting.revoke(
        account=access.account,
        actor=access.key,
        signed=decode_signed_object(data.revocation, "revocation"),
    )
    return {
        "recipient": revocation.recipient.hex(),
        "serial": revocation.serial,
        "receipt": to_base64(receipt),
    }


@post("/rotations", opt={WEIGHT: 10, REVOKING: True})
async def rotate_keys(
    data: JSONBody[RotationBody],
    access: NamedDependency[Access],
    rotations: NamedDependency[Rotations],
    identity: NamedDependency[Identity],
) -> RotationAnswer:
    """Begin the next epoch, without the keys that are revoked with it."""
    bodies.check_relayer(data.relayer, identity)
    rotated = await rotations.rotate(
        access,
        revocations=[decode_signed_object(text, "revocations") for text in data.revocations],
        grants=[decode_signed_object(text, "grants") for text in data.grants],
        reseal=reseal_of(data),
    )
    return {
        "epoch": rotated.epoch,
        "serial": rotated.serial,
        "receipts": shapes.receipts(rotated.receipts),
    }


def reseal_of(body: RotationBody) -> Choice | list[Namespace]:
    """Return the choice of what to seal anew, or the namespaces.

    Raises:
        BadRequest: a namespace is refused by SPEC §3.
    """
    if isinstance(body.reseal, list):
        return [bodies.namespace_of(name) for name in body.reseal]
    return body.reseal


@get("/rotations", opt={REVOKING: True})
async def get_rotation(
    caller: NamedDependency[Caller], rotations: NamedDependency[Rotations]
) -> ProgressAnswer:
    """Return the progress to the newest epoch; keys that come along are lent for it."""
    return _rotation(await rotations.progress(caller.access))


def _rotation(progress: Progress) -> ProgressAnswer:
    """Return the answer for an account's progress to its newest epoch."""
    entries = [_namespace_rotation(entry) for entry in progress.namespaces]
    return {
        "epoch": progress.epoch,
        "started_at": rfc3339_ms(progress.started_ms),
        "total": sum(entry["total"] for entry in entries),
        "done": sum(entry["done"] for entry in entries),
        "remaining": sum(entry["remaining"] for entry in entries),
        "waiting_for_keys": sum(entry["waiting_for_keys"] for entry in entries),
        "older": progress.older,
        "unrestored": progress.unrestored,
        "blocked": [
            {"id": str(one.id), "namespace": one.namespace, "problem": one.problem}
            for one in progress.blocked
        ],
        "namespaces": entries,
    }


def _namespace_rotation(entry: NamespaceProgress) -> NamespaceReseal:
    return {
        "name": entry.name,
        "total": entry.total,
        "done": entry.done,
        "remaining": entry.remaining,
        "waiting_for_keys": entry.waiting_for_keys,
    }


HANDLERS: Final = (
    list_keys,
    list_grants,
    add_grant,
    add_revocation,
    rotate_keys,
    get_rotation,
)
