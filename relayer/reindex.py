"""Bringing every memory's index up to date after a change of model or release, and how far it is.

Not here: the work (`indexing.py`), what runs it in the background (`jobs.py`), printing.

- Beside a running relayer the work is queued there and watched; without one it is done here. A
  sealed account's is done by the running relayer alone, whenever its keys are lent.
- What is done is done: stopping anywhere loses nothing, and the next run goes on from there.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import httpx2

from relayer import app
from relayer.database import accounts as account_rows
from relayer.database import queue
from relayer.database import vectors as vector_rows
from relayer.embedding.embedders import Embedder
from relayer.errors import NotFound, Unavailable
from relayer.indexing import Indexer
from relayer.opening import Opener
from relayer.running import running_url
from relayer.sealed.keys import AccountId, account_text
from relayer.settings import Settings
from relayer.storage import Storage, opened
from relayer.words import INDEX_VERSION

POLL_S: Final = 1.0
ANSWER_S: Final = 10.0


@dataclass(frozen=True)
class Standing:
    """How far one account is, in memories.

    Attributes:
        waiting: out of date, and the relayer can do something about it.
        waiting_for_keys: out of date in a sealed account, until a client lends its keys.
        refused: no endpoint takes the text, so words alone find it.
        lost: its blob is lost or altered.
    """

    account_id: str
    custody: str
    memories: int
    up_to_date: int
    waiting: int
    waiting_for_keys: int
    refused: int
    lost: int


@dataclass(frozen=True)
class Report:
    """How far every account is, against these versions."""

    versions: vector_rows.Versions
    accounts: Sequence[Standing]

    @property
    def ok(self) -> bool:
        """Whether nothing waits."""
        return not self.total("waiting") and not self.total("waiting_for_keys")

    def total(self, name: str) -> int:
        """The sum of one figure over all accounts."""
        return sum(getattr(standing, name) for standing in self.accounts)

    def as_json(self) -> dict[str, Any]:
        """The report for scripts."""
        return {
            "ok": self.ok,
            "embedding_version": self.versions.embedding,
            "index_version": self.versions.index,
            "accounts": [asdict(standing) for standing in self.accounts],
        }

    def as_text(self) -> str:
        """The report in one line for people."""
        parts = [f"{self.total('up_to_date')} of {self.total('memories')} memories up to date"]
        for name in ("waiting", "waiting_for_keys", "refused", "lost"):
            if count := self.total(name):
                parts.append(f"{count} {name.replace('_', ' ')}")
        return ", ".join(parts)


async def examine(
    storage: Storage, versions: vector_rows.Versions, account: AccountId | None = None
) -> Report:
    """How far every account, or this one, is.

    Raises:
        NotFound: no such account.
    """
    rows = await account_rows.list_accounts(storage.database)
    chosen = [AccountId(r["account_id"]) for r in rows if account in (None, r["account_id"])]
    if account is not None and not chosen:
        raise NotFound("No such account.")
    return Report(versions, [await _standing(storage, versions, a) for a in chosen])


async def _standing(
    storage: Storage, versions: vector_rows.Versions, account: AccountId
) -> Standing:
    custody = storage.accounts.custody(await storage.accounts.chain(account))
    found = await vector_rows.progress(storage.database, account=account, versions=versions)
    sealed = custody == "sealed"
    return Standing(
        account_id=account_text(account),
        custody=custody,
        memories=found.memories,
        up_to_date=found.memories - found.waiting - found.refused - found.lost,
        waiting=0 if sealed else found.waiting,
        waiting_for_keys=found.waiting if sealed else 0,
        refused=found.refused,
        lost=found.lost,
    )


async def status(settings: Settings, *, account: AccountId | None) -> Report:
    """How far the running relayer is, or one with these settings would be."""
    async with opened(settings) as storage:
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
    async with opened(settings) as storage:
        running = running_url(settings.data_dir) is not None
        embedder = None if running else app.build_embedder(settings)
        versions = await versions_of(settings) if running else _versions(embedder)
        report = await examine(storage, versions, account)
        chosen = [AccountId(bytes.fromhex(s.account_id[2:])) for s in report.accounts]
        if force:
            for each in chosen:
                await vector_rows.forget_versions(storage.database, account=each)
        if running:
            return await _ask(storage, versions, account, chosen, tell)
        return await _work(storage, embedder, versions, account, chosen, tell)


async def versions_of(settings: Settings) -> vector_rows.Versions:
    """What the running relayer indexes by, or one with these settings would.

    Raises:
        Unavailable: it does not answer, or its model is missing.
    """
    if (url := running_url(settings.data_dir)) is None:
        return _versions(await asyncio.to_thread(app.build_embedder, settings))
    try:
        async with httpx2.AsyncClient(timeout=ANSWER_S) as client:
            answer = (await client.get(f"{url}/health")).json()
        return vector_rows.Versions(answer["index_version"], answer["embedding_version"])
    except (httpx2.HTTPError, ValueError, KeyError, TypeError):
        raise Unavailable("The running relayer does not answer.") from None


def _versions(embedder: Embedder | None) -> vector_rows.Versions:
    return vector_rows.Versions(INDEX_VERSION, None if embedder is None else embedder.version)


async def _ask(
    storage: Storage,
    versions: vector_rows.Versions,
    account: AccountId | None,
    chosen: Sequence[AccountId],
    tell: Callable[[Report], None],
) -> Report:
    """Queue the work at the running relayer and watch it until nothing is left that it can do."""
    for each in chosen:
        if storage.accounts.custody(await storage.accounts.chain(each)) == "managed":
            async with storage.database.connection() as connection:
                await queue.enqueue(connection, queue.REINDEX, each)
    while True:
        async with storage.database.connection() as connection:
            busy = await queue.waiting(connection, queue.REINDEX)
        report = await examine(storage, versions, account)
        if not busy or not report.total("waiting"):
            return report
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
    told = time.monotonic()
    for each in chosen:
        keys = await storage.custody.job_keys(each)
        position: vector_rows.Position | None = vector_rows.START
        while keys is not None and position is not None:
            position = await indexer.next_page(each, keys, position, None)
            if time.monotonic() > told + POLL_S:
                tell(await examine(storage, versions, account))
                told = time.monotonic()
    return await examine(storage, versions, account)
