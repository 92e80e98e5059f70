"""Every route but `/metrics` (`metrics.py`), in one table.

Not here: the routes; they stand by concern in the modules beside this one.
"""

from litestar import Router
from litestar.handlers import HTTPRouteHandler

from relayer.http.requests import check_query
from relayer.routes import (
    accounts,
    archives,
    consolidation,
    corrections,
    counts,
    deletion,
    episodes,
    events,
    keys,
    memories,
    memwal,
    memwal_discovery,
    memwal_manual,
    memwal_mcp,
    namespaces,
    openapi,
    proof,
    recall,
)


def all_routes() -> list[Router | HTTPRouteHandler]:
    """Return our routes under /v1, then MemWal's; paths that modules share are in one router."""
    own = [
        *accounts.HANDLERS,
        *keys.HANDLERS,
        *namespaces.HANDLERS,
        *counts.HANDLERS,
        *memories.HANDLERS,
        *recall.HANDLERS,
        *corrections.HANDLERS,
        *episodes.HANDLERS,
        *deletion.HANDLERS,
        *consolidation.HANDLERS,
        *archives.HANDLERS,
        *proof.HANDLERS,
        *events.HANDLERS,
    ]
    return [
        Router(path="/v1", route_handlers=own, before_request=check_query),
        *memwal.HANDLERS,
        *memwal_manual.HANDLERS,
        *memwal_discovery.HANDLERS,
        *memwal_mcp.HANDLERS,
        *openapi.HANDLERS,
    ]
