"""Our own route that counts memories by period, writer and kind.

Not here: the statement (`database/counts.py`), how many a namespace holds (`namespaces.py`).
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Final, NotRequired, TypedDict

from litestar import post
from litestar.di import NamedDependency
from litestar.params import JSONBody
from msgspec import Meta

from relayer.clock import rfc3339
from relayer.database.counts import count_memories
from relayer.database.pool import Database, Row
from relayer.errors import BadRequest
from relayer.http import bodies
from relayer.http.checks import WEIGHT
from relayer.routes import shapes
from relayer.settings import Limits
from relayer.tenants.access import Access
from relayer.tenants.accounts import Accounts


class CountsBody(bodies.Strict):
    """POST /v1/counts. Without `namespaces`, all that the key may read."""

    bounds: Annotated[list[bodies.Moment], Meta(min_length=1, max_length=Limits.count_periods_max)]
    namespaces: (
        Annotated[list[str], Meta(min_length=1, max_length=Limits.recall_namespaces_max)] | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=Limits.counted_max)] = Limits.counted_max


class WriterCount(TypedDict):
    """The number of memories by one key."""

    writer: shapes.Hex
    writer_label: NotRequired[str]
    memory_count: int


class KindCount(TypedDict):
    """The number of memories of one kind."""

    kind: str
    memory_count: int


class CountsAnswer(TypedDict):
    """Numbers of memories in recall; `counted_since` if there are more than were counted."""

    memory_count: int
    repeated_count: int
    counted_since: shapes.Time | None
    periods: list[int]
    writers: list[WriterCount]
    kinds: list[KindCount]


@post("/counts", status_code=200, opt={WEIGHT: 5})
async def get_counts(
    data: JSONBody[CountsBody],
    access: NamedDependency[Access],
    accounts: NamedDependency[Accounts],
    database: NamedDependency[Database],
) -> CountsAnswer:
    """Return how many memories were stored in periods, by which keys, of which kinds."""
    for bound in (data.bounds[0], data.bounds[-1]):
        bodies.check_moments(bounds=bound)
    if any(one >= other for one, other in pairwise(data.bounds)):
        raise BadRequest("bounds are not in order.")
    names = access.namespaces
    if data.namespaces is not None:
        names = bodies.namespaces_of(None, data.namespaces)
        for name in names:
            access.require(name, "reader")
    rows = await count_memories(
        database,
        account=access.account,
        namespaces=names,
        bounds=data.bounds,
        limit=data.limit,
        now=access.time,
    )
    writers = [row["writer"] for row in rows if row["writer"] is not None]
    return _answer(rows, len(data.bounds), await accounts.labels(access.account, writers))


def _answer(rows: Sequence[Row], period_count: int, labels: Mapping[str, str]) -> CountsAnswer:
    [whole] = [row for row in rows if row["is_whole"]]
    by_period = {row["period"]: row["memories"] for row in rows}
    return {
        "memory_count": whole["memories"],
        "repeated_count": whole["repeated"],
        "counted_since": rfc3339(whole["since"]),
        "periods": [by_period.get(number, 0) for number in range(1, period_count + 1)],
        "writers": [_writer(row, labels) for row in rows if row["writer"] is not None],
        "kinds": [
            {"kind": row["kind"], "memory_count": row["memories"]}
            for row in rows
            if row["kind"] is not None
        ],
    }


def _writer(row: Row, labels: Mapping[str, str]) -> WriterCount:
    found: WriterCount = {"writer": row["writer"].hex(), "memory_count": row["memories"]}
    label = labels.get(found["writer"])
    if label is not None:
        found["writer_label"] = label
    return found


HANDLERS: Final = (get_counts,)
