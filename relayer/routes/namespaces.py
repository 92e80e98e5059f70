"""Our own routes on namespaces: list, count, restore, and how long they keep what they hold.

Not here: what these do (`recovery/restore.py`, `memories/expiry.py`), erasing one
(`deletion.py`).
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

from litestar import Request, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromQuery, JSONBody
from msgspec import UNSET, Meta, UnsetType

from relayer.database import listing
from relayer.database import namespaces as namespace_rows
from relayer.database.pool import Database
from relayer.errors import BadRequest
from relayer.http import bodies
from relayer.http.checks import WEIGHT
from relayer.memories.expiry import Expiry
from relayer.memories.index_choice import IndexChooser
from relayer.memories.opener import Caller
from relayer.recovery.restore import Restore
from relayer.routes import shapes
from relayer.routes.arguments import namespace_in_path
from relayer.sealed.keys import Identity, Namespace
from relayer.settings import Limits
from relayer.tenants.accounts import Access


class RestoreBody(bodies.Change):
    """POST /v1/restore."""

    namespace: str = bodies.DEFAULT_NAMESPACE
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000


class NamespaceBody(bodies.Change):
    """PUT /v1/namespaces/{name}."""

    ttl_s: Annotated[int, Meta(ge=Limits.ttl_s_min, le=Limits.ttl_s_max)] | UnsetType | None = UNSET
    index: Literal["searchable", "sealed"] | UnsetType = UNSET


class NamespacesAnswer(TypedDict):
    """The namespaces that a key may read."""

    namespaces: list[shapes.NamespaceAnswer]


class NamespaceChanged(TypedDict):
    """A namespace with how long it keeps what it holds; alone with its name where it is empty.

    `changed` and `more` are of memories that were given another end.
    """

    name: str
    epoch: NotRequired[int]
    key_id: NotRequired[shapes.Hex]
    epochs: NotRequired[list[shapes.EpochAnswer]]
    memory_count: NotRequired[int]
    revision_count: NotRequired[int]
    superseded_count: NotRequired[int]
    pending_count: NotRequired[int]
    rejected_count: NotRequired[int]
    storage_bytes: NotRequired[int]
    index_bytes: NotRequired[int]
    updated_at: NotRequired[shapes.Time]
    index: NotRequired[Literal["searchable", "sealed"]]
    index_moves: NotRequired[bool]
    ttl_s: int | None
    changed: int
    more: bool


class StatsAnswer(TypedDict):
    """Number and sealed size of a namespace's memories."""

    namespace: str
    memory_count: int
    storage_bytes: int
    updated_at: shapes.Time | None


@get("/namespaces")
async def list_namespaces(
    access: NamedDependency[Access], database: NamedDependency[Database]
) -> NamespacesAnswer:
    """Return the namespaces the key may read."""
    return {"namespaces": await namespaces_shown(access, database, access.namespaces)}


async def namespaces_shown(
    access: Access, database: Database, names: Sequence[Namespace] | None
) -> list[shapes.NamespaceAnswer]:
    """Return those of these namespaces that are there, in their order; of all for None."""
    found = await namespace_rows.summaries(database, access.account, names)
    numbers = None if names is None else [row["namespace_id"] for row in found]
    aside = await listing.count_set_aside(database, access.account, numbers)
    nothing = listing.SetAside()
    return [shapes.namespace(row, aside.get(row["namespace_id"], nothing)) for row in found]


@get("/stats")
async def get_stats(
    access: NamedDependency[Access],
    database: NamedDependency[Database],
    namespace: FromQuery[str] = bodies.DEFAULT_NAMESPACE,
) -> StatsAnswer:
    """Return number and sealed size of a namespace's memories."""
    return await namespace_stats(access, database, bodies.namespace_of(namespace))


async def namespace_stats(access: Access, database: Database, namespace: Namespace) -> StatsAnswer:
    """Return the same for both protocols.

    Raises:
        NotAllowed: not a reader of the namespace.
    """
    access.require(namespace, "reader")
    found = await namespaces_shown(access, database, [namespace])
    if not found:
        return {
            "namespace": namespace,
            "memory_count": 0,
            "storage_bytes": 0,
            "updated_at": None,
        }
    return {
        "namespace": namespace,
        "memory_count": found[0]["memory_count"],
        "storage_bytes": found[0]["storage_bytes"],
        "updated_at": found[0]["updated_at"],
    }


@post("/restore", status_code=200, opt={WEIGHT: 3})
async def restore_namespace(
    data: JSONBody[RestoreBody],
    caller: NamedDependency[Caller],
    restore: NamedDependency[Restore],
    identity: NamedDependency[Identity],
) -> shapes.RestoreAnswer:
    """Rebuild index rows of a namespace from its blobs."""
    bodies.check_relayer(data.relayer, identity)
    namespace = bodies.namespace_of(data.namespace)
    return shapes.to_restore_answer(namespace, await restore.restore(caller, namespace, data.limit))


@put("/namespaces/{name:path}", opt={WEIGHT: 5})
async def put_namespace(
    request: Request[Any, Any, Any],
    data: JSONBody[NamespaceBody],
    access: NamedDependency[Access],
    expiry: NamedDependency[Expiry],
    index_chooser: NamedDependency[IndexChooser],
    database: NamedDependency[Database],
    identity: NamedDependency[Identity],
) -> NamespaceChanged:
    """Say how long a namespace keeps what is stored there, and which index finds it."""
    bodies.check_relayer(data.relayer, identity)
    namespace = namespace_in_path(request)
    if data.index is UNSET and data.ttl_s is UNSET:
        raise BadRequest("Give ttl_s, index or both.")
    if data.index is not UNSET:
        await index_chooser.choose(access, namespace, sealed=data.index == "sealed")
    kept = None if data.ttl_s is UNSET else await expiry.keep(access, namespace, data.ttl_s)
    found = await namespaces_shown(access, database, [namespace])
    changed, more = (0, False) if kept is None else (kept.changed, kept.more)
    ttl_s = kept.ttl_s if kept is not None else found[0]["ttl_s"] if found else None
    if not found:
        return {"name": namespace, "ttl_s": ttl_s, "changed": changed, "more": more}
    return {**found[0], "ttl_s": ttl_s, "changed": changed, "more": more}


HANDLERS: Final = (list_namespaces, get_stats, restore_namespace, put_namespace)
