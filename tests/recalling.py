"""Asking a relayer's service, as tests of recall do."""

from typing import Any

from relayer.memories.opener import Caller
from relayer.memories.recall import Recalled, RecalledMemory
from relayer.query.query import Query
from tests.services import TEAM, Bench


async def recalled(bench: Bench, caller: Caller, text: str, **members: Any) -> Recalled:
    """The whole answer; in the team's namespace, unless it is named."""
    query = Query(**{"text": text, "namespaces": [TEAM], **members})
    return await bench.services.recaller.recall(caller, query)


async def found(bench: Bench, caller: Caller, text: str, **members: Any) -> list[RecalledMemory]:
    """The memories of that answer, best first."""
    return list((await recalled(bench, caller, text, **members)).found)
