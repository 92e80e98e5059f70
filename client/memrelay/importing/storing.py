"""Storing what was found in files: many at a time, none of it twice.

It does not own reading (`files.py`) or what people are told (`commands/files.py`).

- The relayer knows the same fact again by its text, kind and time. So an import that broke off is
  simply run again. Idempotency keys that outlive a run would do harm: what was forgotten meanwhile
  would count as known, and not come back.
- What a relayer refuses is found out one by one, and the rest of its request is stored.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import tzinfo
from itertools import islice
from typing import Any

from memrelay.client import MemoryClient
from memrelay.errors import BadRequest, Conflict, TooLarge
from memrelay.importing.files import File, format_of, read
from memrelay.importing.found import Entry, Fault
from memrelay.models import Draft, Remembered
from memrelay.writing import BULK_ITEMS_MAX


@dataclass
class Tally:
    """How the entries of one file fared; `failed` ones were told to whoever asked."""

    file: str
    format: str
    entries: int = 0
    stored: int = 0
    known: int = 0
    expired: int = 0
    failed: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Item:
    """An entry, and the tally of its file."""

    entry: Entry
    tally: Tally


Failed = Callable[[str, str, str], None]  # is told the file, the place in it and the reason


def items(
    files: Iterable[File],
    tallies: list[Tally],
    failed: Failed,
    *,
    format: str | None,
    zone: tzinfo,
) -> Iterator[Item]:
    """Yield the entries of files, in order; count each file in a tally of its own.

    `format` None lets each file tell; times without an offset are those of `zone`.
    """
    for file in files:
        told = format or format_of(file)
        tally = Tally(file.name, told)
        tallies.append(tally)
        for found in read(file, told, zone=zone):
            if isinstance(found, Entry):
                tally.entries += 1
                yield Item(found, tally)
            elif found.expired:
                tally.expired += 1
            else:
                _fail(tally, found, failed)


def _fail(tally: Tally, fault: Fault, failed: Failed) -> None:
    tally.failed += 1
    failed(tally.file, fault.place, fault.reason)


class Storing:
    """One import: stores items through a client, and keeps the ids when asked to."""

    def __init__(
        self, client: MemoryClient, *, namespace: str | None, failed: Failed, keep_ids: bool = False
    ) -> None:
        self.ids: list[str] = []
        self.done = 0
        self._client = client
        self._namespace = namespace
        self._failed = failed
        self._keep_ids = keep_ids

    async def run(
        self,
        items: Iterator[Item],
        *,
        concurrency: int,
        progress: Callable[[int, int | None], None],
    ) -> None:
        """Store all items, in requests of 20, so many at once.

        Raises:
            MemrelayError: the relayer could not be reached, or refused more than single entries.
        """

        async def work() -> None:
            # The workers share one iterator, so that a file is read only as it is stored.
            while chunk := list(islice(items, BULK_ITEMS_MAX)):
                await self._store(chunk)
                progress(self.done, None)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(max(1, concurrency)):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _store(self, chunk: list[Item]) -> None:
        drafts = [self._named(item.entry.draft) for item in chunk]
        try:
            results = await self._client.remember_many(drafts, concurrency=1)
        except (BadRequest, TooLarge, Conflict) as error:
            if len(chunk) > 1:
                for item in chunk:
                    await self._store([item])
                return
            self.done += 1
            _fail(chunk[0].tally, Fault(chunk[0].entry.place, f"refused: {error}"), self._failed)
            return
        for item, result in zip(chunk, results, strict=True):
            self._count(item.tally, result)

    def _count(self, tally: Tally, result: Remembered) -> None:
        self.done += 1
        tally.known += result.duplicate
        tally.stored += not result.duplicate
        if self._keep_ids:
            self.ids.append(result.id)

    def _named(self, draft: Draft) -> Draft:
        namespace = self._namespace or draft.namespace or self._client.settings.namespace
        return replace(draft, namespace=namespace)
