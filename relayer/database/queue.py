"""The job queue's tables and the one way to put a job in: inside the caller's transaction.

Not here: what a job does (`relayer.jobs`). The statements that put in and take are pgqueuer's.

- A payload names an account and ids, nothing else.
- Jobs run in the order of their priority, then of their age. A long job steps behind others, one
  step for each slice that it had, up to the last place: what sank without end would wait for as
  many turns of others that are as long.
- An account has a few short jobs at most, or one for all that it has waiting (`embed_soon`). So
  what an account has waiting takes one place, however much it is.
- A job is asked for as often as it is put in while one like it waits or runs: a number that rises.
  It is over when that is as it was when it was taken; else it may have looked too early for what it
  was asked for since, and begins again. So there is one at a time.
- Failed jobs, and the lines of the queue's log, are forgotten in time; pgqueuer keeps both.
"""

import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from relayer.database.pool import Connection, Database
from relayer.sealed.keys import AccountId, parse_account

if TYPE_CHECKING:
    from pgqueuer import Queries
    from pgqueuer.ports.driver import Driver

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

_ASKED: Final = "asked"  # in the headers of a job: how often it was asked for since it was put in
BACKLOG_STEP: Final = 20  # turns, or jobs, of an account: the next come a step behind
SHORT_MEMORIES: Final = 20  # of an account, that wait together as short jobs: a bulk request
SHORT_BYTES: Final = 16 * 2**10  # sealed, of these together: about a second of one processor
BACKLOG_COUNTED_MAX: Final = 1_000
LAST: Final = -(BACKLOG_COUNTED_MAX // BACKLOG_STEP)  # the place behind all that jobs begin with
_BEHIND: Final = f"greatest(priority - 1, {LAST})"
STOPPED: Final = -1  # less often than any job was asked for that ended by itself

# Nobody takes it, and its end is not noted, until this transaction is over; then what that wrote is
# seen by whoever takes it, or the number tells that it was not.
_ASK_AGAIN: Final = f"""
UPDATE pgqueuer
SET headers = jsonb_build_object('{_ASKED}', coalesce((headers ->> '{_ASKED}')::int, 0) + 1)
WHERE dedupe_key = $1 AND status IN ('queued', 'picked')
RETURNING true AS asked
"""
_LOCK_ASKED: Final = f"""
SELECT id, coalesce((headers ->> '{_ASKED}')::int, 0) AS asked FROM pgqueuer
WHERE id = ANY ($1) ORDER BY id FOR UPDATE
"""
# Jobs are still worked on. Locked in the order in which ends lock them, too: several of both would
# wait for each other in a circle.
_BEAT: Final = """
UPDATE pgqueuer SET heartbeat = now()
WHERE id IN (SELECT id FROM pgqueuer WHERE id = ANY ($1) ORDER BY id FOR UPDATE)
"""
# As if it were put in now, but behind others that wait: whoever asks all the time shall not be the
# only one whose jobs run. Who is last already waits for a moment instead, since of those with the
# same priority the oldest is taken.
_BEGIN_AGAIN: Final = f"""
WITH again AS (
    UPDATE pgqueuer
    SET status = 'queued', priority = {_BEHIND}, attempts = 0, queue_manager_id = NULL,
        created = now(), updated = now(),
        execute_after = now() + CASE WHEN priority > {LAST} THEN '0' ELSE '1 second' END::interval
    WHERE id = ANY ($1) AND status IN ('queued', 'picked')
    RETURNING id, entrypoint, priority
)
INSERT INTO pgqueuer_log (job_id, status, entrypoint, priority)
SELECT id, 'queued', entrypoint, priority FROM again
"""
_WAITING: Final = """
SELECT dedupe_key, attempts FROM pgqueuer
WHERE dedupe_key = ANY ($1) AND status IN ('queued', 'picked')
"""
# Whether any job runs, or is to run within a time.
_DUE: Final = """
SELECT true AS due FROM pgqueuer
WHERE status IN ('queued', 'picked') AND execute_after <= now() + $1::interval
LIMIT 1
"""
# How often a job was picked since it was put in, or put back by whoever had picked it.
_TAKEN: Final = """
SELECT count(*) AS taken FROM pgqueuer_log
WHERE job_id = $1 AND status = 'picked'
  AND id > coalesce((SELECT max(id) FROM pgqueuer_log WHERE job_id = $1 AND status = 'queued'), 0)
"""
# One step behind others that wait. To be put back counts as an attempt; this one did what it could.
_STEP_BEHIND: Final = f"""
UPDATE pgqueuer SET priority = {_BEHIND}, attempts = -1 WHERE id = $1
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
                   AND EXISTS (SELECT 1 FROM pgqueuer j
                               WHERE j.id = l.job_id AND j.status <> 'failed')
                   AND NOT EXISTS (SELECT 1 FROM pgqueuer_log b
                                   WHERE b.job_id = l.job_id AND b.status = 'queued'
                                     AND b.id > l.id))
        ORDER BY l.created, l.id LIMIT $2 FOR UPDATE OF l SKIP LOCKED)
    RETURNING id
)
SELECT count(*) AS forgotten FROM forgotten
"""
# How many of an account's memories wait for their vectors, and their bytes, as far as they are
# counted; the statement that stores new ones counts likewise (`write_statement`). The index is one
# of sealed memories: without saying so, each write reads all that its account has.
_MEMORIES_BEHIND: Final = """
SELECT count(*) AS memories, coalesce(sum(size_bytes), 0) AS bytes FROM (
    SELECT size_bytes FROM memories
    WHERE account_id = $1 AND index_version = $3 AND embedding_version = '' AND format = 'sealed'
    LIMIT $2) m
"""
# How many of its turns wait for their facts.
_TURNS_BEHIND: Final = """
SELECT count(*) FROM (
    SELECT 1 FROM episodes WHERE account_id = $1 AND state = 'pending' LIMIT $2) e
"""
FORGOTTEN_AT_ONCE: Final = 5_000


class Waiting(NamedTuple):
    """The memories of an account that wait for vectors, and their bytes, as far as counted."""

    memories: int
    bytes: int


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
    """Queue one job about these ids, or the account, committed together with everything else.

    While such a job waits or runs already, it is asked for once more.
    """
    queries, payload = _queries(connection), encode_payload(account, ids)
    key = _dedupe_key(entrypoint, account, ids)
    # Again only where what was there ended between two statements.
    while True:
        [job_id] = await queries.enqueue(
            entrypoint, payload, priority, dedupe_key=key, on_conflict="skip"
        )
        if job_id is not None:
            said = {"event": "jobs.queued", "kind": entrypoint, "job_id": job_id}
            log.debug("queued", extra=said)
            return
        if await connection.fetchval(_ASK_AGAIN, key):
            return


async def beat(way: "Database | Driver", job_ids: Sequence[int]) -> None:
    """Note that jobs are still worked on."""
    await way.execute(_BEAT, job_ids)


def count_asked(headers: Mapping[str, object] | None) -> int:
    """Return how often a job with these headers had been asked for."""
    number = (headers or {}).get(_ASKED, 0)
    return number if isinstance(number, int) else 0


async def begin_again(connection: Connection, ended: Mapping[int, int]) -> set[int]:
    """Put back those of these jobs that were asked for more often than this; the others are not
    asked for until the transaction is over."""
    rows = await connection.fetch(_LOCK_ASKED, list(ended))
    again = {r["id"] for r in rows if r["asked"] > ended[r["id"]]}
    if again:
        await connection.execute(_BEGIN_AGAIN, list(again))
    return again


async def count_unembedded(
    connection: Connection, account: AccountId, *, index_version: int
) -> Waiting:
    """Count the memories of an account that wait for their vectors, up to what decides."""
    row = await connection.fetchrow(_MEMORIES_BEHIND, account, SHORT_MEMORIES + 1, index_version)
    assert row is not None
    return Waiting(row["memories"], row["bytes"])


async def embed_soon(
    connection: Connection, account: AccountId, ids: Sequence[uuid.UUID], waiting: Waiting
) -> None:
    """Queue the embedding of memories that this transaction has written; they wait, too.

    Where little of the account waits, a job for these alone, which is over soon. Otherwise its one
    job for all that waits, which works in slices.
    """
    if waiting.memories > SHORT_MEMORIES or waiting.bytes > SHORT_BYTES:
        await enqueue(connection, REINDEX, account)
    else:
        await enqueue(connection, EMBED, account, ids)


async def behind_episodes(connection: Connection, account: AccountId) -> int:
    """Return the priority, 0 or less, of an account's next job to extract."""
    waiting: int = await connection.fetchval(_TURNS_BEHIND, account, BACKLOG_COUNTED_MAX)
    # What is written just now is counted, too, and does not wait for itself.
    return -(max(0, waiting - 1) // BACKLOG_STEP)


async def step_behind(database: Database, job_id: int) -> None:
    """Let a job that is put back come after those which had as much time as it, or less."""
    await database.execute(_STEP_BEHIND, job_id)


async def count_waiting(
    connection: Connection, entrypoint: str, accounts: Sequence[AccountId]
) -> dict[str, int]:
    """Return such jobs of these accounts that wait or run → how often each was put back."""
    keys = [_dedupe_key(entrypoint, a, ()) for a in accounts]
    rows = await connection.fetch(_WAITING, keys)
    return {r["dedupe_key"]: r["attempts"] for r in rows}


async def is_due(database: Database, *, within: timedelta) -> bool:
    """Tell whether any job runs, or is to run within a time."""
    return await database.fetchrow(_DUE, within) is not None


async def not_there(
    connection: Connection,
    entrypoint: str,
    account: AccountId,
    jobs: Sequence[Sequence[uuid.UUID]],
) -> list[Sequence[uuid.UUID]]:
    """Return those of these jobs that neither wait nor run, nor failed lately."""
    keys = [_dedupe_key(entrypoint, account, ids) for ids in jobs]
    there = {r["dedupe_key"] for r in await connection.fetch(_THERE, keys)}
    return [ids for key, ids in zip(keys, jobs, strict=True) if key not in there]


async def list_named(
    database: Database, entrypoint: str, account: AccountId | None = None
) -> list[uuid.UUID]:
    """List the ids in jobs of one kind, of one account or all.

    The jobs wait, run, or failed lately.
    """
    rows = await database.fetch(_NAMED, entrypoint)
    jobs = [decode_payload(r["payload"]) for r in rows]
    return [i for owner, ids in jobs if account in (None, owner) for i in ids]


async def forget(database: Database, *, older_than: timedelta, pages_max: int) -> None:
    """Forget jobs that failed, and lines of the log, that long ago; the rest is for later."""
    for statement in (_FORGET_FAILED, _FORGET_LINES):
        for _ in range(pages_max):
            row = await database.fetchrow(statement, older_than, FORGOTTEN_AT_ONCE)
            if row is None or row["forgotten"] < FORGOTTEN_AT_ONCE:
                break


async def count_taken(database: Database, job_id: int) -> int:
    """Count how often workers took a job and never reported its end, this time included."""
    row = await database.fetchrow(_TAKEN, job_id)
    return 0 if row is None else int(row["taken"])


def _dedupe_key(entrypoint: str, account: AccountId, ids: Sequence[uuid.UUID]) -> str:
    several = f"+{len(ids) - 1}" if len(ids) > 1 else ""
    return f"{entrypoint}:{ids[0] if ids else account.hex()}{several}"


def encode_payload(account: AccountId, ids: Sequence[uuid.UUID]) -> bytes:
    """Return the payload of a job."""
    return json.dumps({"account": "0x" + account.hex(), "ids": [str(i) for i in ids]}).encode()


def decode_payload(payload: bytes | None) -> tuple[AccountId, list[uuid.UUID]]:
    """Return the account and ids of a job."""
    members = json.loads(payload or b"")
    return parse_account(members["account"]), [uuid.UUID(i) for i in members["ids"]]
