"""Our own routes by which an account moves: export from here, import to here.

Not here: what these do (`archives/exporter.py`, `archives/importer.py`), the records
(`portable.py`).
"""

from typing import Annotated, Any, Final, TypedDict

from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import FromQuery, JSONBody, QueryParameter
from msgspec import Meta, field

from relayer.archives.exporter import Exporter, Part
from relayer.archives.importer import Arrival, Importer
from relayer.errors import BadRequest
from relayer.http import bodies
from relayer.http.checks import WEIGHT
from relayer.http.openapi import one_of
from relayer.portable import (
    FORMS,
    MovedAccount,
    MovedEpisode,
    MovedGrant,
    MovedMemory,
    MovedNamespace,
    MovedState,
    MovedTombstone,
)
from relayer.routes import shapes
from relayer.routes.arguments import parse_id
from relayer.sealed.keys import Identity
from relayer.settings import Limits
from relayer.tenants.accounts import Access


class ImportBody(bodies.Change):
    """POST /v1/import."""

    account: MovedAccount | None = None
    grants: Annotated[list[MovedGrant], Meta(max_length=Limits.page_limit_max)] = field(
        default_factory=list
    )
    namespaces: Annotated[list[MovedNamespace], Meta(max_length=Limits.page_limit_max)] = field(
        default_factory=list
    )
    tombstones: Annotated[list[MovedTombstone], Meta(max_length=Limits.page_limit_max)] = field(
        default_factory=list
    )
    memories: Annotated[list[MovedMemory], Meta(max_length=Limits.page_limit_max)] = field(
        default_factory=list
    )
    episodes: Annotated[list[MovedEpisode], Meta(max_length=Limits.page_limit_max)] = field(
        default_factory=list
    )
    states: Annotated[list[MovedState], Meta(max_length=Limits.page_limit_max)] = field(
        default_factory=list
    )


class ExportAnswer(TypedDict):
    """A page of one part of the account; receipts are signed objects."""

    part: Part
    records: list[Annotated[Any, one_of(*FORMS)]]
    next: str | None


class ImportedItem(TypedDict):
    """The outcome for one row of an import."""

    id: shapes.Id
    status: str


class ImportAnswer(TypedDict):
    """The number of new grants, the outcome for each row, and the receipts for what is new."""

    grants: int
    results: list[ImportedItem]
    receipts: list[shapes.Base64]


@get("/export", opt={WEIGHT: 3})
async def export_account(
    access: NamedDependency[Access],
    exporter: NamedDependency[Exporter],
    part: FromQuery[Part],
    cursor: FromQuery[str] = "",
    ids: Annotated[list[str] | None, QueryParameter(max_items=Limits.exported_ids_max)] = None,
) -> ExportAnswer:
    """Return a page of what the account has here, sealed as it is; for owners."""
    if ids is None:
        page, following = await exporter.page(access, part, cursor)
    elif part == "memories":
        page, following = await exporter.memories(access, [parse_id(i) for i in ids], cursor)
    elif part == "episodes":
        page, following = await exporter.episodes(access, [parse_id(i) for i in ids])
    else:
        raise BadRequest("ids are of memories or episodes.")
    return {"part": part, "records": list(page), "next": following}


@post("/import", status_code=200, opt={WEIGHT: 10}, request_max_body_size=Limits.import_bytes_max)
async def import_account(
    data: JSONBody[ImportBody],
    access: NamedDependency[Access],
    importer: NamedDependency[Importer],
    identity: NamedDependency[Identity],
) -> ImportAnswer:
    """Take in what an account had at another relayer; for owners."""
    bodies.check_relayer(data.relayer, identity)
    arrived = await importer.take_in(access, arrival_of(data))
    return {
        "grants": arrived.grants,
        "results": [{"id": str(i), "status": status} for i, status in arrived.results],
        "receipts": shapes.receipts(arrived.receipts),
    }


def arrival_of(body: ImportBody) -> Arrival:
    """Return the arrival that an import brings."""
    return Arrival(
        account=body.account,
        grants=body.grants,
        namespaces=body.namespaces,
        tombstones=body.tombstones,
        memories=body.memories,
        episodes=body.episodes,
        states=body.states,
    )


HANDLERS: Final = (export_account, import_account)
