"""Bringing every memory's index up to date after a change of model or release, and how far it is.

Not here: the work (`memories/indexer.py`), what runs it in the background (`jobs.py`), printing.

- Beside a running relayer the work is queued there and watched; without one it is done here. A
  sealed account's is done by the running relayer alone, whenever its keys are lent.
- What is done is done: stopping anywhere loses nothing, and the next run goes on from there.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import httpx2

from relayer.database import accounts as account_rows
from relayer.database import queue
from relayer.database import vectors as vector_rows
from relayer.embedding import building
from relayer.embedding.embedders import Embedder
from relayer.errors import Corrupted, NotFound, Unavailable
from relayer.installation import as_found, open_storage
from relayer.memories.indexer import Indexer
from relayer.memories.opener import Opener
from relayer.run_file import find_url, split_socket_url
from relayer.sealed.keys import AccountId, account_text, parse_account
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.words.tokens import INDEX_VERSION

POLL_S: Final = 1.0
TRIES: Final = 3  # that brought nothing, before following the work ends
STOPPED: Final = (
    "the running relayer cannot go on, its embedder or a store is away (relayer doctor says more): "
    "it tries again by itself"
)
ANSWER_S: Final = 10.0


@dataclass(frozen=True)
class Standing:
    """The progress of one account, in memories.

    Attributes:
        waiting: out of date, and the relayer can do something about it.
        waiting_for_keys: out of date in a sealed account, until a client lends its keys.
        missing: out of date, and its blob is not in the store; tried again once an hour.
        refused: no endpoint takes the text, so words alone find it.
        lost: its blob is altered.
        problem: why the account cannot be looked at; empty when it can.
    """

    account_id: str
    custody: str
    memories: int = 0
    up_to_date: int = 0
    waiting: int = 0
    waiting_for_keys: int = 0
    missing: int = 0
    refused: int = 0
    lost: int = 0
    problem: str = ""


@dataclass(frozen=True)
class Report:
    """The progress of every account, against these versions; `stopped` says why nobody goes on."""

    versions: vector_rows.Versions
    accounts: Sequence[Standing]
    stopped: str = ""

    @property
    def ok(self) -> bool:
        """Return true if nothing waits, is missing or is broken."""
        left = sum(self.total(name) for name in ("waiting", "waiting_for_keys", "missing"))
        return not left and not any(standing.problem for standing in self.accounts)

    def total(self, name: str) -> int:
        """Return the sum of one figure over all accounts."""
        return sum(getattr(standing, name) for standing in self.accounts)

    def as_json(self) -> dict[str, Any]:
        """Return the report for scripts."""
        return {
            "ok": self.ok,
            "embedding_version": self.versions.embedding,
            "index_version": self.versions.index,
            "stopped": self.stopped,
            "accounts": [asdict(standing) for standing in self.accounts],
        }

    def as_text(self) -> str:
        """Return the report in one line for people."""
        parts = [f"{self.total('up_to_date')} of {self.total('memories')} memories up to date"]
        for name in ("waiting", "waiting_for_keys", "missing", "refused", "lost"):
            if count := self.total(name):
                parts.append(f"{count} {name.replace('_', ' ')}")
        if broken := sum(bool(standing.problem) for standing in self.accounts):
            parts.append(f"{broken} accounts that cannot be looked at: relayer check")
        return ", ".join(parts) + (f"; {self.stopped}" if self.stopped else "")


async def examine(
    storage: Storage, versions: vector_rows.Versions, account: AccountId | None = None
) -> Report:
    """Return the progress of every account, or of this one.

    Raises:
        NotFound: no such account.
    """
    rows = await account_rows.list_accounts(storage.database)
    chosen = [AccountId(r["whole_id"]) for r in rows if account in (None, r["whole_id"])]
    if account is not None and not chosen:
        raise NotFound("No such account.")
    return Report(versions, [await _read_standing(storage, versions, a) for a in chosen])


async def _read_standing(
    storage: Storage, versions: vector_rows.Versions, account: AccountId
) -> Standing:
    try:
        custody = storage.accounts.custody(await storage.accounts.chain(account))
    except (Corrupted, NotFound) as error:
        return Standing(account_text(account), "unknown", problem=error.message)
    found = await vector_rows.progress(storage.database, account=account, versions=versions)
    sealed = custody == "sealed"
    return Standing(
        account_id=account_text(account),
        custody=custody,
        memories=found.memories,
        up_to_date=found.up_to_date,
        waiting=0 if sealed else found.waiting,
        waiting_for_keys=found.waiting if sealed else 0,
        missing=found.missing,
        refused=found.refused,
        lost=found.lost,
    )


async def status(settings: Settings, *, account: AccountId | None) -> Report:
    """Return the progress of the running relayer, or of one with these settings."""
    async with as_found(settings) as storage:
        return await examine(storage, await versions_of(settings), account)


async def reindex(
    settings: Settings, *, account: AccountId | None, force: bool, tell: Callable[[Report], None]
) -> Report:
    """Bring everything up to date that can be; `tell` hears about the progress.

    With `force` every vector is made again, for another file behind the same model's name.

    Raises:
        NotFound: no such account.
        Unavailable: the embedder, a store or the running relayer is away.
    """
    async with open_storage(settings, new=False) as storage:
        running = find_url(settings.data_dir) is not None
        embedder = None if running else building.build_embedder(settings)
        versions = await versions_of(settings) if running else versions_by(embedder)
        report = await examine(storage, versions, account)
        chosen = [parse_account(s.account_id) for s in report.accounts if not s.problem]
        if force:
            for each in chosen:
                await vector_rows.forget_versions(storage.database, account=each)
        if running:
            return await _ask(storage, versions, account, chosen, tell)
        return await _work(storage, embedder, versions, account, chosen, tell)


async def versions_of(settings: Settings) -> vector_rows.Versions:
    """Return the versions that the running relayer indexes by, or one with these settings would.

    Raises:
        Unavailable: it does not answer, or its model is missing.
    """
    if (found := await read_running_versions(settings)) is not None:
        return found
    return versions_by(await asyncio.to_thread(building.build_embedder, settings))


async def read_running_versions(settings: Settings) -> vector_rows.Versions | None:
    """Return the versions that the running relayer indexes by; None where none runs.

    Raises:
        Unavailable: it does not answer.
    """
    if (url := find_url(settings.data_dir)) is None:
        return None
    try:
        base, socket = split_socket_url(url)
        way = httpx2.AsyncHTTPTransport(uds=socket) if socket else None
        async with httpx2.AsyncClient(timeout=ANSWER_S, transport=way) as client:
            answer = (await client.get(f"{base}/health")).json()
        return vector_rows.Versions(answer["index_version"], answer["embedding_version"])
    except (httpx2.HTTPError, ValueError, KeyError, TypeError):
        raise Unavailable("The running relayer does not answer.") from None


def versions_by(embedder: Embedder | None) -> vector_rows.Versions:
    """Return the versions that a relayer with this embedder indexes by."""
    return vector_rows.Versions(INDEX_VERSION, None if embedder is None else embedder.version)


async def _ask(
    storage: Storage,
    versions: vector_rows.Versions,
    account: AccountId | None,
    chosen: Sequence[AccountId],
    tell: Callable[[Report], None],
) -> Report:
    """Queue the work at the running relayer and watch it until it has done what it can."""
    for each in chosen:
        if storage.accounts.custody(await storage.accounts.chain(each)) == "managed":
            async with storage.database.connection() as connection:
                await queue.enqueue(connection, queue.REINDEX, each)
    before: Mapping[str, int] = {}
    left = -1
    while True:
        async with storage.database.connection() as connection:
            jobs = await queue.count_waiting(connection, queue.REINDEX, chosen)
        report = await examine(storage, versions, account)
        if not jobs or not report.total("waiting"):
            return report
        if report.total("waiting") != left:
            before, left = jobs, report.total("waiting")
        elif all(tries >= before.get(job, 0) + TRIES for job, tries in jobs.items()):
            return replace(report, stopped=STOPPED)
        tell(report)
        await asyncio.sleep(POLL_S)


async def _work(
    storage: Storage,
    embedder: Embedder | None,
    versions: vector_rows.Versions,
    account: AccountId | None,
    chosen: Sequence[AccountId],
    tell: Callable[[Report], None],
) -> Report:
    """Do the work here, for accounts whose keys the relayer holds."""
    opener = Opener(blobs=storage.blobs, embeds=embedder is not None)
    indexer = Indexer(database=storage.database, opener=opener, embedder=embedder)
    told, stopped = time.monotonic(), ""
    for each in chosen:
        try:
            keys = await storage.custody.job_keys(each)
        except Corrupted as error:
            stopped = f"{account_text(each)}: {error.message}"
            continue
        position = vector_rows.START
        while keys and (page := await indexer.next_page(each, keys, position, None)):
            position = page.after
            if time.monotonic() > told + POLL_S:
                tell(await examine(storage, versions, account))
                told = time.monotonic()
    return replace(await examine(storage, versions, account), stopped=stopped)
