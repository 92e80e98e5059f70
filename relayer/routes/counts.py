"""Our own route that counts memories by period, writer and kind.

Not here: the statement (`database/counts.py`), how many a namespace holds (`namespaces.py`).
"""

from collections.abc import Mapping, Sequence
from datetime import date
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
from relayer.tenants.accounts import Access, Accounts
from relayer.tenants.recall_counts import RecallCounts

MOST_RECALLED: Final = 10  # shown; each may be fetched then


class CountsBody(bodies.Strict):
    """POST /v1/counts. Without `namespaces`, all that the key may read."""

    bounds: Annotated[list[bodies.Moment], Meta(min_length=1, max_length=Limits.count_periods_max)]
    namespaces: (
        Annotated[list[str], Meta(min_length=1, max_length=Limits.recall_namespaces_max)] | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=Limits.counted_max)] = Limits.counted_max


class GroupCount(TypedDict):
    """The number of memories; where recalls are counted, the number of those never recalled."""

    memory_count: int
    never_recalled_count: NotRequired[int]


class _Named(TypedDict, total=False):
    writer_label: str


class WriterCount(GroupCount, _Named):
    """The numbers of memories by one key."""

    writer: shapes.Hex


class KindCount(GroupCount):
    """The numbers of memories of one kind."""

    kind: str


class MostRecalled(TypedDict):
    """One of the memories that were recalled most."""

    id: shapes.Id
    namespace: str
    recall_count: int
    last_recalled_on: shapes.Day


class RecallsAnswer(TypedDict):
    """Counts of recalls since a day, of what this key reads: `most` are the ten recalled most."""

    since: shapes.Day
    never_recalled_count: int
    most: list[MostRecalled]


class CountsAnswer(TypedDict):
    """Numbers of memories in recall; `counted_since` if there are more than were counted.

    `recalls` is null where the account does not count them.
    """

    memory_count: int
    repeated_count: int
    counted_since: shapes.Time | None
    periods: list[int]
    writers: list[WriterCount]
    kinds: list[KindCount]
    recalls: RecallsAnswer | None


@post("/counts", status_code=200, opt={WEIGHT: 5})
async def get_counts(
    data: JSONBody[CountsBody],
    access: NamedDependency[Access],
    accounts: NamedDependency[Accounts],
    database: NamedDependency[Database],
    recall_counts: NamedDependency[RecallCounts],
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
    recalls = await recall_counts.find_most(access, names, MOST_RECALLED)
    rows = await count_memories(
        database,
        account=access.account,
        namespaces=names,
        bounds=data.bounds,
        limit=data.limit,
        now=access.time,
        counts_recalls=recalls is not None,
    )
    writers = [row["writer"] for row in rows if row["writer"] is not None]
    labels = await accounts.labels(access.account, writers)
    return _answer(rows, len(data.bounds), labels, recalls)


def _answer(
    rows: Sequence[Row],
    period_count: int,
    labels: Mapping[str, str],
    recalls: tuple[date, Sequence[Row]] | None,
) -> CountsAnswer:
    is_counted = recalls is not None
    [whole] = [row for row in rows if row["is_whole"]]
    by_period = {row["period"]: row["memories"] for row in rows}
    return {
        "memory_count": whole["memories"],
        "repeated_count": whole["repeated"],
        "counted_since": rfc3339(whole["since"]),
        "periods": [by_period.get(number, 0) for number in range(1, period_count + 1)],
        "writers": [
            _writer(row, labels, is_counted=is_counted) for row in rows if row["writer"] is not None
        ],
        "kinds": [
            {"kind": row["kind"], **_group(row, is_counted=is_counted)}
            for row in rows
            if row["kind"] is not None
        ],
        "recalls": None if recalls is None else _recalls(*recalls, whole),
    }


def _recalls(since: date, most: Sequence[Row], whole: Row) -> RecallsAnswer:
    return {
        "since": since.isoformat(),
        "never_recalled_count": whole["unused"],
        "most": [
            {
                "id": str(row["memory_id"]),
                "namespace": row["namespace"],
                "recall_count": row["recall_count"],
                "last_recalled_on": row["last_on"].isoformat(),
            }
            for row in most
        ],
    }


def _group(row: Row, *, is_counted: bool) -> GroupCount:
    found: GroupCount = {"memory_count": row["memories"]}
    if is_counted:
        found["never_recalled_count"] = row["unused"]
    return found


def _writer(row: Row, labels: Mapping[str, str], *, is_counted: bool) -> WriterCount:
    writer = row["writer"].hex()
    named: _Named = {"writer_label": labels[writer]} if writer in labels else {}
    return {"writer": writer, **named, **_group(row, is_counted=is_counted)}


HANDLERS: Final = (get_counts,)
