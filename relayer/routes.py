"""Our own routes, under /v1: from a checked request to a service and back to JSON.

Not here: MemWal's routes (`memwal.py`), body forms (`bodies.py`), request checks (`checks.py`).
"""

import uuid
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Router, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from relayer import bodies, query_bodies, shapes
from relayer.accounts import Access, Accounts
from relayer.analysis import Analysis
from relayer.checks import FOUNDING, PUBLIC, WEIGHT
from relayer.clock import rfc3339, rfc3339_ms
from relayer.custody import Custody
from relayer.database import accounts as account_rows
from relayer.database import namespaces as namespace_rows
from relayer.database.pool import Database
from relayer.errors import BadRequest, NotAllowed, NotFound
from relayer.memory import LAST_SEQ, MemoryService
from relayer.opening import Caller
from relayer.recall import RecallService
from relayer.record import Kind
from relayer.registration import Registration
from relayer.restore import Restore
from relayer.sealed.keys import (
    Identity,
    Namespace,
    PublicKey,
    account_text,
    parse_account,
)
from relayer.sealed.primitives import CryptoError, from_base64, to_base64
from relayer.settings import Limits, Settings

UNLOCK_HEADER: Final = "x-memrelay-unlock"
Answer = dict[str, Any]
PageLimit = Annotated[int, QueryParameter(ge=1, le=Limits.page_limit_max)]


def check_relayer(named: str, identity: Identity) -> None:
    """Return when a change names this relayer: one signed for another is worthless here.

    Raises:
        BadRequest: it names another.
    """
    if named != identity.public_key.hex():
        raise BadRequest("This change is signed for another relayer.", code="relayer.other")


def parse_id(text: str) -> uuid.UUID:
    """A memory id.

    Raises:
        NotFound: it cannot be one.
    """
    try:
        return uuid.UUID(text)
    except ValueError:
        raise NotFound("No such memory.") from None


def signed_object(text: str, name: str) -> bytes:
    """The bytes of a signed object in a body.

    Raises:
        BadRequest: not base64.
    """
    try:
        return from_base64(text)
    except CryptoError:
        raise BadRequest(f"{name} is not base64.") from None


@get("/relayer", opt={PUBLIC: True})
async def relayer_statement(custody: NamedDependency[Custody]) -> Answer:
    """The relayer's signed statement: its identity and the unlock keys that live now."""
    return {"statement": to_base64(custody.statement())}


@post("/accounts", opt={FOUNDING: True, WEIGHT: 10})
async def create_account(
    request: Request[Any, Any, Any],
    data: JSONBody[bodies.AccountBody],
    accounts: NamedDependency[Accounts],
    registration: NamedDependency[Registration],
    identity: NamedDependency[Identity],
) -> Answer:
    """Found an account with its first grants."""
    check_relayer(data.relayer, identity)
    registration.check(request, data.token)
    founder: PublicKey = request.state.founder
    grants = [signed_object(g, "grants") for g in data.grants]
    chain, receipts = await accounts.create(founder=founder, grants=grants, label=data.label)
    return {
        "account_id": account_text(chain.account),
        "public_key": founder.hex(),
        "custody": accounts.custody(chain),
        "relayer_key": identity.public_key.hex(),
        "label": data.label,
        "receipts": shapes.receipts(receipts),
    }


@get("/accounts/{account_id:str}")
async def get_account(
    account_id: FromPath[str],
    access: NamedDependency[Access],
    database: NamedDependency[Database],
    identity: NamedDependency[Identity],
) -> Answer:
    """One's own account."""
    check_account(account_id, access)
    row = await account_rows.find_account(database, access.account)
    if row is None:
        raise NotFound("No such account.")
    return {
        "account_id": account_id,
        "label": row["label"],
        "custody": access.custody,
        "grant_serial": row["grant_serial"],
        "created_at": rfc3339(row["created_at"]),
        "relayer_key": identity.public_key.hex(),
    }


def check_account(text: str, access: Access) -> None:
    """Return when the account is one's own.

    Raises:
        NotFound: foreign, absent or malformed, all alike.
    """
    try:
        own = parse_account(text) == access.account
    except CryptoError:
        own = False
    if not own:
        raise NotFound("No such account.")


@get("/grants")
async def list_grants(
    access: NamedDependency[Access], accounts: NamedDependency[Accounts]
) -> Answer:
    """Signed grants and revocations the key may see."""
    listed = await accounts.listed_grants(access)
    grants = [entry | {"object": to_base64(entry["object"])} for entry in listed]
    return {"grants": grants, "grant_serial": access.serial}


@post("/grants", opt={WEIGHT: 3})
async def add_grant(
    data: JSONBody[bodies.GrantBody],
    access: NamedDependency[Access],
    accounts: NamedDependency[Accounts],
    identity: NamedDependency[Identity],
) -> Answer:
    """Give a key that agreed to join something to read or write."""
    check_relayer(data.relayer, identity)
    access.require_owner()
    grant, receipt = await accounts.grant(
        account=access.account,
        actor=access.key,
        signed=signed_object(data.grant, "grant"),
        join=signed_object(data.join, "join"),
        label=data.label,
    )
    return {"grant": str(grant.grant), "serial": grant.serial, "receipt": to_base64(receipt)}


@post("/revocations", opt={WEIGHT: 3})
async def add_revocation(
    data: JSONBody[bodies.RevocationBody],
    access: NamedDependency[Access],
    accounts: NamedDependency[Accounts],
    identity: NamedDependency[Identity],
) -> Answer:
    """Take everything from a key that it was given so far."""
    check_relayer(data.relayer, identity)
    access.require_owner()
    revocation, receipt = await accounts.revoke(
        account=access.account,
        actor=access.key,
        signed=signed_object(data.revocation, "revocation"),
    )
    return {
        "recipient": revocation.recipient.hex(),
        "serial": revocation.serial,
        "receipt": to_base64(receipt),
    }


@get("/settings")
async def get_settings(access: NamedDependency[Access]) -> Answer:
    """What the account has chosen."""
    return {"settings": msgspec.to_builtins(access.settings)}


@patch("/settings", opt={WEIGHT: 3})
async def change_settings(
    data: JSONBody[bodies.SettingsBody],
    access: NamedDependency[Access],
    accounts: NamedDependency[Accounts],
    identity: NamedDependency[Identity],
) -> Answer:
    """Choose anew; what is not named stays."""
    check_relayer(data.relayer, identity)
    settings = bodies.settings_of(data, access.settings)
    await accounts.choose(access, settings)
    return {"settings": msgspec.to_builtins(settings)}


@get("/keys")
async def list_keys(access: NamedDependency[Access], accounts: NamedDependency[Accounts]) -> Answer:
    """The account's keys as their grants say."""
    keys = [
        {
            "public_key": key["public_key"],
            "label": key["label"],
            "role": key["role"],
            "namespaces": key["namespaces"],
            "created_at": rfc3339_ms(key["created_ms"]),
            "expires_at": rfc3339_ms(key["expires_ms"]),
            "revoked": key["revoked"],
        }
        for key in await accounts.listed_keys(access)
    ]
    return {"keys": keys}


@get("/namespaces")
async def list_namespaces(
    access: NamedDependency[Access], database: NamedDependency[Database]
) -> Answer:
    """The namespaces the key may read."""
    found = await namespace_rows.find_namespaces(database, access.account, access.namespaces)
    return {"namespaces": [shapes.namespace(row) for row in found]}


@post("/remember", status_code=202, opt={WEIGHT: 5})
async def remember(
    data: JSONBody[bodies.RememberBody],
    caller: NamedDependency[Caller],
    memory: NamedDependency[MemoryService],
    identity: NamedDependency[Identity],
) -> Answer:
    """Remember one text: durable and found by keyword when this answers."""
    check_relayer(data.relayer, identity)
    draft = bodies.draft_of(data, bytes_max=Limits.text_bytes_max, now=memory.now())
    stored = await memory.remember(caller, [draft], route="remember")
    receipt = shapes.receipts(stored.receipts)
    return shapes.stored(stored.items[0]) | {"receipt": receipt[0] if receipt else None}


@post("/remember/bulk", status_code=202, opt={WEIGHT: 10})
async def remember_bulk(
    data: JSONBody[bodies.BulkBody],
    caller: NamedDependency[Caller],
    memory: NamedDependency[MemoryService],
    identity: NamedDependency[Identity],
) -> Answer:
    """Remember up to 20 texts in one transaction."""
    check_relayer(data.relayer, identity)
    stored = await memory.remember(caller, bodies.drafts_of(data.items, memory.now()), route="bulk")
    return {
        "results": [shapes.stored(item) for item in stored.items],
        "total": len(stored.items),
        "receipts": shapes.receipts(stored.receipts),
    }


@post("/recall", status_code=200)
async def recall(
    data: JSONBody[query_bodies.RecallBody],
    caller: NamedDependency[Caller],
    recaller: NamedDependency[RecallService],
    memory: NamedDependency[MemoryService],
) -> Answer:
    """The memories that answer a query, best first."""
    recalled = await recaller.recall(caller, query_bodies.query_of(data, memory.now()))
    return shapes.recalled(recalled, explain=data.explain)


@post("/analyze", status_code=202, opt={WEIGHT: 5})
async def analyze(
    data: JSONBody[bodies.AnalyzeBody],
    caller: NamedDependency[Caller],
    analysis: NamedDependency[Analysis],
    identity: NamedDependency[Identity],
) -> Answer:
    """Remember what is worth keeping of a conversation."""
    check_relayer(data.relayer, identity)
    analyzed = await analysis.analyze(caller, bodies.conversation_of(data))
    return {
        "episode_id": None if analyzed.episode is None else str(analyzed.episode),
        "facts": [shapes.fact(item) for item in analyzed.facts],
        "fact_count": len(analyzed.facts),
        "status": "done" if analyzed.episode is None else "pending",
        "redacted": analyzed.redacted,
        "receipts": shapes.receipts(analyzed.receipts),
    }


@post("/ask", status_code=200, opt={WEIGHT: 2})
async def ask(
    data: JSONBody[query_bodies.AskBody],
    caller: NamedDependency[Caller],
    analysis: NamedDependency[Analysis],
    memory: NamedDependency[MemoryService],
) -> Answer:
    """A language model's answer from what is recalled."""
    answer = await analysis.ask(caller, query_bodies.question_of(data, memory.now()))
    return {
        "answer": answer.text,
        "memories_used": len(answer.memories),
        "memories": [shapes.result(f, explain=False) for f in answer.memories],
    }


@post("/restore", status_code=200, opt={WEIGHT: 3})
async def restore_namespace(
    data: JSONBody[bodies.RestoreBody],
    caller: NamedDependency[Caller],
    restore: NamedDependency[Restore],
    identity: NamedDependency[Identity],
) -> Answer:
    """Rebuild index rows of a namespace from its blobs."""
    check_relayer(data.relayer, identity)
    namespace = bodies.namespace_of(data.namespace)
    done = await restore.restore(caller, namespace, data.limit)
    return {
        "restored": done.restored,
        "skipped": done.skipped,
        "failed": done.failed,
        "total": done.total,
        "truncated": done.truncated,
        "namespace": namespace,
    }


@get("/memories")
async def list_memories(
    caller: NamedDependency[Caller],
    memory: NamedDependency[MemoryService],
    namespace: FromQuery[str] = bodies.DEFAULT_NAMESPACE,
    limit: PageLimit = 50,
    cursor: FromQuery[str | None] = None,
    kind: FromQuery[Kind | None] = None,
) -> Answer:
    """A page of memories, newest first."""
    page = await memory.newest(
        caller,
        [bodies.namespace_of(namespace)],
        before_seq=_sequence(cursor),
        kind=kind,
        limit=limit,
    )
    return {
        "memories": [shapes.memory(m) for m in page],
        "next_cursor": str(page[-1].seq) if len(page) == limit else None,
    }


def _sequence(cursor: str | None) -> int:
    if cursor is None:
        return LAST_SEQ
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise BadRequest("cursor is not one of ours.")
    return int(cursor)


@get("/memories/{memory_id:str}")
async def get_memory(
    memory_id: FromPath[str],
    caller: NamedDependency[Caller],
    memory: NamedDependency[MemoryService],
) -> Answer:
    """One memory."""
    return shapes.memory(await memory.get(caller, parse_id(memory_id)))


@delete("/memories/{memory_id:str}", status_code=200, opt={WEIGHT: 3})
async def forget_memory(
    memory_id: FromPath[str],
    relayer: FromQuery[str],
    access: NamedDependency[Access],
    memory: NamedDependency[MemoryService],
    identity: NamedDependency[Identity],
) -> Answer:
    """Erase one memory, with a receipt."""
    check_relayer(relayer, identity)
    receipt, pending = await memory.forget(access, parse_id(memory_id))
    return {
        "id": str(parse_id(memory_id)),
        "erased": True,
        "pending": pending,
        "receipt": to_base64(receipt),
    }


@post("/memories/status", status_code=200)
async def memory_status(
    data: JSONBody[bodies.StatusBody],
    access: NamedDependency[Access],
    memory: NamedDependency[MemoryService],
) -> Answer:
    """How far memories are: stored and found by keyword, or by vector too."""
    return {"results": await states(access, memory, data.ids)}


async def states(access: Access, memory: MemoryService, ids: list[str]) -> list[Answer]:
    """One state per id, in order; foreign, absent and malformed ids are all `not_found`."""
    parsed = {text: maybe_id(text) for text in ids}
    found = await memory.states(access, [i for i in parsed.values() if i is not None])
    return [
        {"id": text, "status": found[i]["state"] if (i := parsed[text]) in found else "not_found"}
        for text in ids
    ]


def maybe_id(text: str) -> uuid.UUID | None:
    """An id, or None where it cannot be one."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


@get("/receipts")
async def list_receipts(
    access: NamedDependency[Access],
    database: NamedDependency[Database],
    after: Annotated[int, QueryParameter(ge=0, le=LAST_SEQ)] = 0,
    limit: PageLimit = 100,
) -> Answer:
    """The account's chain of receipts, for those who may see the whole account."""
    if access.namespaces is not None:
        raise NotAllowed("Receipts name every namespace; this key may not see them all.")
    row = await account_rows.find_account(database, access.account)
    if row is None:
        raise NotFound("No such account.")
    signed = await account_rows.receipts_after(database, access.account, after, limit)
    return {
        "receipts": shapes.receipts(signed),
        "seq": row["receipt_seq"],
        "head": row["receipt_head"].hex(),
    }


@get("/stats")
async def stats(
    access: NamedDependency[Access],
    database: NamedDependency[Database],
    namespace: FromQuery[str] = bodies.DEFAULT_NAMESPACE,
) -> Answer:
    """Number and sealed size of a namespace's memories."""
    return await namespace_stats(access, database, bodies.namespace_of(namespace))


async def namespace_stats(access: Access, database: Database, namespace: Namespace) -> Answer:
    """The same for both protocols.

    Raises:
        NotAllowed: not a reader of the namespace.
    """
    access.require(namespace, "reader")
    found = await namespace_rows.find_namespaces(database, access.account, [namespace])
    return {
        "namespace": namespace,
        "memory_count": found[0]["memory_count"] if found else 0,
        "storage_bytes": found[0]["storage_bytes"] if found else 0,
        "updated_at": rfc3339(found[0]["updated_at"]) if found else None,
    }


@get("/usage")
async def usage(
    access: NamedDependency[Access],
    database: NamedDependency[Database],
    settings: NamedDependency[Settings],
) -> Answer:
    """What the account uses of what it may use."""
    row = await account_rows.find_account(database, access.account)
    if row is None:
        raise NotFound("No such account.")
    return {
        "memory_count": row["memory_count"],
        "storage_bytes": row["storage_bytes"],
        "storage_bytes_max": settings.storage_bytes_max,
        "requests": {
            "limited": settings.rate_limit == "on",
            "per_minute": settings.requests_per_minute,
            "per_hour": settings.requests_per_hour,
            "per_key_per_minute": settings.key_requests_per_minute,
        },
    }


def v1_router() -> Router:
    """Every route under /v1."""
    return Router(
        path="/v1",
        route_handlers=[
            relayer_statement,
            create_account,
            get_account,
            list_grants,
            add_grant,
            add_revocation,
            get_settings,
            change_settings,
            list_keys,
            list_namespaces,
            remember,
            remember_bulk,
            recall,
            analyze,
            ask,
            restore_namespace,
            list_memories,
            get_memory,
            forget_memory,
            memory_status,
            list_receipts,
            stats,
            usage,
        ],
    )
