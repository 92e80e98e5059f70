"""Our own routes on consolidation: begin a run, look at runs, undo one.

Not here: what a run would do (`memories/consolidation_plan.py`), does
(`memories/consolidation.py`), and did (`memories/runs.py`).
"""

import uuid
from typing import Final, Literal, TypedDict

from litestar import Response, get, post
from litestar.di import NamedDependency
from litestar.openapi import ResponseSpec
from litestar.params import FromPath, FromQuery, JSONBody

from relayer import cursors
from relayer.clock import rfc3339
from relayer.database.pool import Row
from relayer.http import bodies
from relayer.http.checks import WEIGHT
from relayer.memories.consolidation_plan import Plan, Planner
from relayer.memories.opener import Caller
from relayer.memories.runs import Runs
from relayer.routes import shapes
from relayer.routes.arguments import PageLimit, maybe_id, parse_id
from relayer.sealed.keys import Identity
from relayer.tenants.accounts import Access


class ConsolidateBody(bodies.Change):
    """POST /v1/consolidate."""

    namespace: str = bodies.DEFAULT_NAMESPACE
    dry_run: bool = False


class UndoBody(bodies.Change):
    """POST /v1/consolidations/{id}/undo."""


class PlannedAction(TypedDict):
    """One thing that a run would do; a memory that it would make has no id yet."""

    action: str
    memory_id: shapes.Id | None
    other_ids: list[shapes.Id]


class PlanAnswer(TypedDict):
    """The actions that a run would take, as far as it was looked at."""

    namespace: str
    actions: list[PlannedAction]
    more: bool


class RunAnswer(TypedDict):
    """One consolidation run."""

    id: shapes.Id
    namespace: str
    state: str
    actor: shapes.Hex
    started_at: shapes.Time
    finished_at: shapes.Time | None
    merged: int
    stale: int
    summaries: int
    procedures: int


class ActionAnswer(TypedDict):
    """One thing that a run did."""

    action: str
    memory_id: shapes.Id
    other_ids: list[shapes.Id]
    created_at: shapes.Time
    undone: Literal["outdated", "skipped", "undone"] | None


class RunsAnswer(TypedDict):
    """A page of runs, newest first."""

    consolidations: list[RunAnswer]
    next_cursor: str | None


class RunActionsAnswer(RunAnswer):
    """One run, with a page of what it did, in order."""

    actions: list[ActionAnswer]
    next_cursor: str | None


class UndoAnswer(RunAnswer):
    """A run, and how much of it was taken back."""

    undone: int
    skipped: int
    more: bool
    receipts: list[shapes.Base64]


_ANSWERS: Final = {
    200: ResponseSpec(PlanAnswer, generate_examples=False, description="with dry_run"),
    202: ResponseSpec(RunAnswer, generate_examples=False, description="the run has begun"),
}


@post("/consolidate", status_code=202, responses=_ANSWERS, opt={WEIGHT: 10})
async def consolidate(
    data: JSONBody[ConsolidateBody],
    caller: NamedDependency[Caller],
    runs: NamedDependency[Runs],
    planner: NamedDependency[Planner],
    identity: NamedDependency[Identity],
) -> Response[PlanAnswer] | Response[RunAnswer]:
    """Begin a run, or say what one would do."""
    bodies.check_relayer(data.relayer, identity)
    namespace = bodies.namespace_of(data.namespace)
    if data.dry_run:
        plan = await planner.plan(caller, namespace)
        return Response(_plan(namespace, plan), status_code=200)
    return Response(_run(await runs.start(caller, namespace)), status_code=202)


def _plan(namespace: str, found: Plan) -> PlanAnswer:
    """Return the answer for a plan; memories that it would make have no id yet."""
    return {
        "namespace": namespace,
        "actions": [
            {
                "action": done.action,
                "memory_id": None if done.is_new else str(done.memory_id),
                "other_ids": [str(i) for i in done.other_ids],
            }
            for done in found.actions
        ],
        "more": found.more,
    }


@get("/consolidations")
async def list_consolidations(
    access: NamedDependency[Access],
    runs: NamedDependency[Runs],
    namespace: FromQuery[str | None] = None,
    limit: PageLimit = 50,
    cursor: FromQuery[str | None] = None,
) -> RunsAnswer:
    """Return a page of runs, newest first."""
    page = await runs.newest(
        access,
        None if namespace is None else bodies.namespace_of(namespace),
        before=_position(cursor),
        limit=limit,
    )
    return {
        "consolidations": [_run(row) for row in page],
        "next_cursor": str(page[-1]["run_id"]) if len(page) == limit else None,
    }


@get("/consolidations/{run_id:str}")
async def get_consolidation(
    run_id: FromPath[str],
    access: NamedDependency[Access],
    runs: NamedDependency[Runs],
    limit: PageLimit = 100,
    cursor: FromQuery[str | None] = None,
) -> RunActionsAnswer:
    """Return one run, with a page of what it did, in order."""
    run = await runs.get(access, parse_id(run_id))
    page = await runs.actions(
        access,
        run["run_id"],
        after=_position(cursor),
        limit=limit,
    )
    return {
        **_run(run),
        "actions": [_action(row) for row in page],
        "next_cursor": str(page[-1]["action_id"]) if len(page) == limit else None,
    }


@post("/consolidations/{run_id:str}/undo", status_code=200, opt={WEIGHT: 10})
async def undo_consolidation(
    run_id: FromPath[str],
    data: JSONBody[UndoBody],
    access: NamedDependency[Access],
    runs: NamedDependency[Runs],
    identity: NamedDependency[Identity],
) -> UndoAnswer:
    """Take back what a run did."""
    bodies.check_relayer(data.relayer, identity)
    done = await runs.undo(access, parse_id(run_id))
    return {
        **_run(done.run),
        "undone": done.undone,
        "skipped": done.skipped,
        "more": done.more,
        "receipts": shapes.receipts(done.receipts),
    }


def _run(row: Row) -> RunAnswer:
    """Return one consolidation run."""
    return {
        "id": str(row["run_id"]),
        "namespace": row["namespace"],
        "state": row["state"],
        "actor": row["actor"].hex(),
        "started_at": rfc3339(row["started_at"]),
        "finished_at": rfc3339(row["finished_at"]),
        "merged": row["merged"],
        "stale": row["stale"],
        "summaries": row["summaries"],
        "procedures": row["procedures"],
    }


def _action(row: Row) -> ActionAnswer:
    """Return one thing that a run did."""
    return {
        "action": row["action"],
        "memory_id": str(row["memory_id"]),
        "other_ids": [str(i) for i in row["other_ids"]],
        "created_at": rfc3339(row["created_at"]),
        "undone": row["undone"],
    }


def _position(cursor: str | None) -> uuid.UUID | None:
    position = None if cursor is None else maybe_id(cursor)
    if cursor is not None and position is None:
        raise cursors.not_ours()
    return position


HANDLERS: Final = (consolidate, list_consolidations, get_consolidation, undo_consolidation)
