"""The job queue's tables and the one way to put a job in: inside the caller's transaction.

Not here: what a job does (`relayer.jobs`). The statements that put in and take are pgqueuer's.

- A payload names an account and ids, nothing else.
- Jobs run in the order of their priority, then of their age. Whoever has much waiting comes behind
  others, so that a backlog of one account keeps nobody else's memories from being indexed; and so
  does a long job, one step for each slice that it had.
- A job that runs may have looked already for what another one like it is put in for: that one waits
  behind it, and takes its place to begin. So one of them runs at a time, and one waits.
- Failed jobs, and the lines of the queue's log, are forgotten in time; pgqueuer keeps both.
"""

import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from relayer.database.pool import Connection, Database, UniqueViolation
from relayer.sealed.keys import AccountId, parse_account

if TYPE_CHECKING:
    from pgqueuer import Queries

log = logging.getLogger("relayer.jobs")

EMBED = "embed"
EXTRACT = "extract"
REINDEX = "reindex"
RESEAL = "reseal"
CONSOLIDATE = "consolidate"
RESTORE = "restore"
DELETE_BLOBS = "delete_blobs"
KINDS: Final = (EMBED, EXTRACT, REINDEX, RESEAL, CONSOLIDATE, RESTORE, DELETE_BLOBS)
STATES: Final = ("queued", "picked", "failed")

_BEHIND: Final = "behind"  # in the headers of a job: which one it waits for

# Whether such a job has not begun; then it does not until this transaction is over, and sees what
# that wrote. One that is behind another has not when it was taken, only when it is in its place.
_NOT_BEGUN: Final = f"""
SELECT true AS waits FROM pgqueuer
WHERE dedupe_key = $1 AND status IN ('queued', 'picked')
  AND (status = 'queued' OR headers ? '{_BEHIND}')
FOR UPDATE
"""
_STATE_OF: Final = """
SELECT status FROM pgqueuer WHERE dedupe_key = $1 AND status IN ('queued', 'picked')
"""
# One that was behind another is like any other from now on: what is put in meanwhile waits for it.
_TAKE_PLACE: Final = """
UPDATE pgqueuer SET dedupe_key = $2, headers = NULL, attempts = 0 WHERE id = $1
"""
_WAITING: Final = """
SELECT dedupe_key, attempts FROM pgqueuer
WHERE dedupe_key = ANY ($1) AND status IN ('queued', 'picked')
"""
# How often a job was picked since it was put in, or put back by whoever had picked it.
_TAKEN: Final = """
SELECT count(*) AS taken FROM pgqueuer_log
WHERE job_id = $1 AND status = 'picked'
  AND id > coalesce((SELECT max(id) FROM pgqueuer_log WHERE job_id = $1 AND status = 'queued'), 0)
"""
# What waits for longer than that.
_PUT_OFF: Final = """
SELECT payload FROM pgqueuer
WHERE entrypoint = $1 AND status = 'queued' AND execute_after > now() + $2::interval
"""
# One step behind others that wait.
_STEP_BEHIND: Final = """
UPDATE pgqueuer SET priority = priority - 1 WHERE id = $1
"""
# Which of these jobs wait, run, or failed and are not forgotten yet.
_THERE: Final = """
SELECT dedupe_key FROM pgqueuer WHERE dedupe_key = ANY ($1)
"""
_NAMED: Final = """
SELECT payload FROM pgqueuer WHERE entrypoint = $1
"""
# Jobs that failed long enough ago, some at a time.
_FORGET_FAILED: Final = """
WITH forgotten AS (
    DELETE FROM pgqueuer WHERE id IN (
        SELECT id FROM pgqueuer WHERE status = 'failed' AND updated < now() - $1::interval
        ORDER BY updated LIMIT $2 FOR UPDATE SKIP LOCKED)
    RETURNING id
)
SELECT count(*) AS forgotten FROM forgotten
"""
# Old lines, but for those that tell how often a living job was taken (`_TAKEN`); the oldest first,
# so that no line goes before an earlier one which it makes useless.
_FORGET_LINES: Final = """
WITH forgotten AS (
    DELETE FROM pgqueuer_log WHERE id IN (
        SELECT l.id FROM pgqueuer_log l
        WHERE l.created < now() - $1::interval
          AND NOT (l.status = 'picked'
                   AND EXISTS (SELECT FROM pgqueuer j
                               WHERE j.id = l.job_id AND j.status <> 'failed')
                   AND NOT EXISTS (SELECT FROM pgqueuer_log b
                                   WHERE b.job_id = l.job_id AND b.status = 'queued'
                                     AND b.id > l.id))
        ORDER BY l.created, l.id LIMIT $2 FOR UPDATE OF l SKIP LOCKED)
    RETURNING id
)
SELECT count(*) AS forgotten FROM forgotten
"""
# How many of an account's memories wait for their vectors, as far as they are counted. The index is
# one of sealed memories: without saying so, each write reads all that its account has.
_MEMORIES_BEHIND: Final = """
SELECT count(*) FROM (
    SELECT FROM memories
    WHERE account_id = $1 AND index_version = $3 AND embedding_version = '' AND format = 'sealed'
    LIMIT $2) m
"""
# How many of its turns wait for their facts.
_TURNS_BEHIND: Final = """
SELECT count(*) FROM (
    SELECT FROM episodes WHERE account_id = $1 AND state = 'pending' LIMIT $2) e
"""
BEHIND_AFTER: Final = timedelta(seconds=0.2)  # most jobs that are done are noted as that by then
BACKLOG_STEP: Final = 20  # one request of the greatest size
BACKLOG_COUNTED_MAX: Final = 1_000
FORGOTTEN_AT_ONCE: Final = 5_000


def _queries(connection: Connection) -> "Queries":
    # It takes a third of the time that a command takes to start, and many come to nothing here.
    from pgqueuer import AsyncpgDriver, Queries  # noqa: PLC0415

    return Queries(AsyncpgDriver(connection))


async def install(connection: Connection) -> None:
    """Create or upgrade pgqueuer's tables."""
    queries = _queries(connection)
    if await queries.schema_is_installed():
        await queries.upgrade()
    else:
        await queries.install()


async def enqueue(
    connection: Connection,
    entrypoint: str,
    account: AccountId,
    ids: Sequence[uuid.UUID] = (),
    *,
    priority: int = 0,
) -> None:
    """One job about these ids, or the account, committed or rolled back with everything else.

    While such a job waits already, nothing happens; one that runs is waited for.
    """
    queries, payload = _queries(connection), encode_payload(account, ids)
    key = _dedupe_key(entrypoint, account, ids)
    put_in = partial(queries.enqueue, entrypoint, payload, priority, on_conflict="skip")
    ways: Final = {
        key: partial(put_in, dedupe_key=key),
        _behind(key): partial(
            put_in,
            execute_after=BEHIND_AFTER,
            dedupe_key=_behind(key),
            headers={_BEHIND: key},
        ),
    }
    # Again only where what was there began, or ended, between two statements.
    while True:
        for name, way in ways.items():
            [job_id] = await way()
            if job_id is not None:
                said = {"event": "jobs.queued", "kind": entrypoint, "job_id": job_id}
                log.debug("queued", extra=said)
                return
            if await connection.fetchval(_NOT_BEGUN, name):
                return


async def take_place(
    database: Database, job_id: int, headers: Mapping[str, object] | None
) -> str | None:
    """The state of the job that one with these headers waits for; None if it may begin itself."""
    if (key := (headers or {}).get(_BEHIND)) is None:
        return None
    row = await database.fetchrow(_STATE_OF, key)
    if row is not None:
        return str(row["status"])
    try:
        await database.execute(_TAKE_PLACE, job_id, key)
    except UniqueViolation:
        return "picked"  # put in at this moment: it is looked at again
    return None


async def behind_memories(connection: Connection, account: AccountId, *, index_version: int) -> int:
    """The priority, 0 or less, of an account's next job to embed."""
    waiting = await connection.fetchval(
        _MEMORIES_BEHIND, account, BACKLOG_COUNTED_MAX, index_version
    )
    return _place(waiting)


async def behind_turns(connection: Connection, account: AccountId) -> int:
    """The priority, 0 or less, of an account's next job to extract."""
    return _place(await connection.fetchval(_TURNS_BEHIND, account, BACKLOG_COUNTED_MAX))


def _place(waiting: int) -> int:
    """What is written just now is counted, too, and does not wait for itself."""
    return -(max(0, waiting - 1) // BACKLOG_STEP)


async def step_behind(database: Database, job_id: int) -> None:
    """Let a job that is put back come after those which had as much time as it, or less."""
    await database.execute(_STEP_BEHIND, job_id)


async def waiting(
    connection: Connection, entrypoint: str, accounts: Sequence[AccountId]
) -> dict[str, int]:
    """Such jobs of these accounts that wait or run → how often each was put back.

    One that is behind another was not begun, however often it was looked at.
    """
    keys = {_dedupe_key(entrypoint, a, ()) for a in accounts}
    rows = await connection.fetch(_WAITING, [*keys, *map(_behind, keys)])
    return {r["dedupe_key"]: r["attempts"] if r["dedupe_key"] in keys else 0 for r in rows}


async def not_there(
    connection: Connection,
    entrypoint: str,
    account: AccountId,
    jobs: Sequence[Sequence[uuid.UUID]],
) -> list[Sequence[uuid.UUID]]:
    """Those of these jobs, by what they are about, that neither wait nor run, nor failed lately."""
    keys = [_dedupe_key(entrypoint, account, ids) for ids in jobs]
    there = {r["dedupe_key"] for r in await connection.fetch(_THERE, keys)}
    return [ids for key, ids in zip(keys, jobs, strict=True) if key not in there]


async def named(database: Database, entrypoint: str) -> list[uuid.UUID]:
    """What the jobs of one kind are about that wait, run, or failed lately."""
    rows = await database.fetch(_NAMED, entrypoint)
    return [i for r in rows for i in decode_payload(r["payload"])[1]]


async def forget(database: Database, *, older_than: timedelta, pages_max: int) -> None:
    """Forget jobs that failed, and lines of the log, that long ago; the rest is for later."""
    for statement in (_FORGET_FAILED, _FORGET_LINES):
        for _ in range(pages_max):
            row = await database.fetchrow(statement, older_than, FORGOTTEN_AT_ONCE)
            if row is None or row["forgotten"] < FORGOTTEN_AT_ONCE:
                break


async def taken(database: Database, job_id: int) -> int:
    """How often workers took a job and never said what became of it, the present one included."""
    row = await database.fetchrow(_TAKEN, job_id)
    return 0 if row is None else int(row["taken"])


async def put_off(
    database: Database, entrypoint: str, account: AccountId, longer_than: timedelta
) -> set[uuid.UUID]:
    """What the account's jobs are about that will not be taken for that long."""
    rows = await database.fetch(_PUT_OFF, entrypoint, longer_than)
    jobs = [decode_payload(r["payload"]) for r in rows]
    return {i for owner, ids in jobs if owner == account for i in ids}


def _dedupe_key(entrypoint: str, account: AccountId, ids: Sequence[uuid.UUID]) -> str:
    several = f"+{len(ids) - 1}" if len(ids) > 1 else ""
    return f"{entrypoint}:{ids[0] if ids else account.hex()}{several}"


def _behind(key: str) -> str:
    return f"{key} {_BEHIND}"


def encode_payload(account: AccountId, ids: Sequence[uuid.UUID]) -> bytes:
    """The payload of a job."""
    return json.dumps({"account": "0x" + account.hex(), "ids": [str(i) for i in ids]}).encode()


def decode_payload(payload: bytes | None) -> tuple[AccountId, list[uuid.UUID]]:
    """The account and ids of a job."""
    members = json.loads(payload or b"")
    return parse_account(members["account"]), [uuid.UUID(i) for i in members["ids"]]
