"""Our own routes that erase: memories, and a namespace with everything in it.

Not here: what is erased (`memories/deletion.py`), closing an account
(`accounts.py`).
"""

import uuid
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict, cast

from litestar import Request, delete, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import Meta

from relayer.errors import BadRequest
from relayer.http import bodies
from relayer.http.checks import WEIGHT
from relayer.memories.deletion import Deletion, Filter, Forgotten, State
from relayer.memories.opener import Caller
from relayer.record import Kind
from relayer.routes import shapes
from relayer.routes.arguments import maybe_id, namespace_in_path, parse_id
from relayer.sealed.keys import Identity, PublicKey
from relayer.sealed.primitives import to_base64
from relayer.settings import Limits
from relayer.tenants.accounts import Access

NIL: Final = uuid.UUID(int=0)  # no memory has it


class ForgetBody(bodies.Change):
    """POST /v1/forget: ids, or a namespace and what narrows it."""

    ids: Annotated[list[str], Meta(min_length=1, max_length=100)] | None = None
    namespace: str | None = None
    kind: Kind | None = None
    # An empty list is refused: whoever computed one would erase the whole namespace.
    tags: Annotated[list[bodies.Tag], Meta(min_length=1, max_length=Limits.tags_max)] | None = None
    source: bodies.Source | None = None
    writer: bodies.HexKey | None = None
    after: bodies.Moment | None = None
    before: bodies.Moment | None = None
    pinned: bool | None = None
    state: State | None = None
    dry_run: bool = False


class ForgetMemoryAnswer(TypedDict):
    """A memory that was erased, now or already; `receipt` names it, the others what went along."""

    id: shapes.Id
    erased: Literal[True]
    already: bool
    pending: bool
    receipt: shapes.Base64 | None
    receipts: list[shapes.Base64]


class IdStatus(TypedDict):
    """The outcome for one id of a request."""

    id: str
    status: str


class ForgetSeveralAnswer(shapes.ForgetAnswer):
    """The number of memories erased or matched; `results` where ids were named."""

    results: NotRequired[list[IdStatus]]


class ForgetNamespaceAnswer(shapes.ForgetAnswer):
    """The number of memories of a namespace that were erased."""

    namespace: str


@delete("/memories/{memory_id:str}", status_code=200, opt={WEIGHT: 3})
async def forget_memory(
    memory_id: FromPath[str],
    relayer: FromQuery[str],
    access: NamedDependency[Access],
    deletion: NamedDependency[Deletion],
    identity: NamedDependency[Identity],
) -> ForgetMemoryAnswer:
    """Erase one memory, with a receipt; one that was erased before has had its receipt."""
    bodies.check_relayer(relayer, identity)
    wanted = parse_id(memory_id)
    done = await deletion.forget(access, wanted)
    return {
        "id": str(wanted),
        "erased": True,
        "already": not done.receipts,
        "pending": done.pending,
        "receipt": _find_naming_receipt(wanted, done),
        "receipts": shapes.receipts(done.receipts),
    }


def _find_naming_receipt(memory_id: uuid.UUID, done: Forgotten) -> str | None:
    """Return the receipt that names the memory itself, among those of what went along with it."""
    name = str(memory_id).encode()
    return next((to_base64(signed) for signed in done.receipts if name in signed), None)


@post("/forget", status_code=200, opt={WEIGHT: 10})
async def forget(
    data: JSONBody[ForgetBody],
    caller: NamedDependency[Caller],
    deletion: NamedDependency[Deletion],
    identity: NamedDependency[Identity],
) -> ForgetSeveralAnswer:
    """Erase several memories: these, or what fits in a namespace."""
    bodies.check_relayer(data.relayer, identity)
    if (chosen := filter_of(data)) is not None:
        done = await deletion.forget_matching(caller, chosen, dry_run=data.dry_run)
        return cast("ForgetSeveralAnswer", _to_forget_answer(done))
    ids = data.ids or []
    parsed = [maybe_id(text) or NIL for text in ids]
    done = await deletion.forget_ids(caller.access, parsed, dry_run=data.dry_run)
    fates = zip(ids, done.fates or (), strict=True)
    return {
        **_to_forget_answer(done),
        "results": [{"id": text, "status": fate} for text, fate in fates],
    }


def filter_of(body: ForgetBody) -> Filter | None:
    """Return the filter of a request to forget in a namespace; None where ids are named.

    Raises:
        BadRequest: both, neither, or out of range.
    """
    narrowing = (body.kind, body.source, body.writer, body.after, body.before, body.pinned)
    narrowed = any(value is not None for value in (*narrowing, body.tags, body.state))
    if body.ids is not None:
        if narrowed or body.namespace is not None:
            raise BadRequest("ids stand alone: there is nothing to narrow.")
        return None
    if body.namespace is None:
        raise BadRequest("Name ids or a namespace.")
    bodies.check_moments(after=body.after, before=body.before)
    if body.after is not None and body.before is not None and body.after >= body.before:
        raise BadRequest("after must be before before.")
    return Filter(
        namespace=bodies.namespace_of(body.namespace),
        kind=body.kind,
        tags=body.tags or (),
        source=body.source,
        writer=None if body.writer is None else PublicKey(bytes.fromhex(body.writer)),
        after=body.after,
        before=body.before,
        pinned=body.pinned,
        state=body.state or "active",
    )


def _to_forget_answer(done: Forgotten) -> shapes.ForgetAnswer:
    """Return the answer for an erasure or its rehearsal, with the first hundred ids."""
    return {
        "matched": done.matched,
        "erased": done.erased,
        "more": done.more,
        "pending": done.pending,
        "ids": [str(i) for i in done.ids[:100]],
        "receipts": shapes.receipts(done.receipts),
    }


@delete("/namespaces/{name:path}", status_code=200, opt={WEIGHT: 10})
async def forget_namespace(
    request: Request[Any, Any, Any],
    relayer: FromQuery[str],
    access: NamedDependency[Access],
    deletion: NamedDependency[Deletion],
    identity: NamedDependency[Identity],
) -> ForgetNamespaceAnswer:
    """Erase everything in a namespace, and the namespace."""
    bodies.check_relayer(relayer, identity)
    namespace = namespace_in_path(request)
    done = await deletion.forget_namespace(access, namespace)
    return {"namespace": namespace, **_to_forget_answer(done)}


HANDLERS: Final = (forget_memory, forget, forget_namespace)
