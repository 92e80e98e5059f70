"""Storing what was found in files: many at a time, none of it twice.

It does not own reading (`reader.py`), conversations (`analyzing.py`) or what people are told
(`commands/imports.py`).

- The relayer knows the same fact again by its text, kind and time. So an import that broke off is
  simply run again. Idempotency keys that outlive a run would do harm: what was forgotten meanwhile
  would count as known, and not come back.
- What was exported from a memory that is still there is an edit of it, if it was changed, and
  nothing otherwise. Whoever changed the memory meanwhile is not overruled.
- What is refused is found out one by one, and the rest of its request is stored. A namespace that
  this key may not write is asked for once.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

from memrelay.async_client import MemoryClient
from memrelay.errors import (
    BadRequest,
    Conflict,
    Invalid,
    MemrelayError,
    NotAllowed,
    NotFound,
    NotGranted,
    TooLarge,
)
from memrelay.importing.drafts import Fault
from memrelay.importing.edits import changes
from memrelay.importing.reader import Failed, Item, fail
from memrelay.models import Draft, Memory, Remembered, secrets_in
from memrelay.operations.writes import BULK_ITEMS_MAX, REJECTED
from memrelay.sealed.keys import normalise_namespace

_REQUESTS_AT_ONCE = 4
_CLOSED = (NotGranted, NotAllowed)
_REFUSED = (BadRequest, TooLarge, Conflict, *_CLOSED)


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
        self._closed: dict[str, MemrelayError] = {}  # namespaces that this key may not write

    async def run(self, items: Iterator[Item], *, progress: Callable[[int], None]) -> None:
        """Store all items, in requests of 20, some of them at once.

        Raises:
            MemrelayError: the relayer could not be reached, or refused more than single entries.
        """

        async def work() -> None:
            # The workers share one iterator, so that a file is read only as it is stored.
            while chunk := list(islice(items, BULK_ITEMS_MAX)):
                await self._store(chunk)
                progress(self.done)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_REQUESTS_AT_ONCE):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _store(self, chunk: list[Item]) -> None:
        wanted = []
        for item in chunk:
            closed = self._closed.get(self._namespace_of(item))
            if closed is None:
                wanted.append(item)
            else:
                self._refuse(item, closed)
        wanted = await self._correct_exported(wanted)
        if not wanted:
            return
        drafts = [replace(item.entry.draft, namespace=self._namespace_of(item)) for item in wanted]
        try:
            results = await self._client.remember_many(drafts, concurrency=1)
        except _REFUSED as error:
            if len(wanted) == 1:
                return self._refuse(wanted[0], error)
            for item in wanted:
                await self._store([item])
            return
        for item, result in zip(wanted, results, strict=True):
            self._tally_one(item, result)
            if result.status != REJECTED:
                await self._store_earlier(item, result)

    async def _store_earlier(self, item: Item, later: Remembered) -> None:
        """Store what a memory took the place of as history, unless an earlier run did."""
        namespace = self._namespace_of(item)
        for draft in (replace(one, namespace=namespace) for one in item.entry.earlier):
            try:
                if await self._is_history(draft):
                    self._note_known(item, later.id)
                    continue
                (result,) = await self._client.remember_many([draft])
                if result.status != REJECTED:
                    await self._client.supersede(result.id, by=later.id)
            except _REFUSED as error:
                self._refuse(item, error)
            else:
                self._tally_one(item, result)

    async def _is_history(self, draft: Draft) -> bool:
        # What is superseded is no longer known again by its text.
        page = await self._client.list(
            namespace=draft.namespace, source=draft.source, state="superseded"
        )
        return any(one.text == draft.text.strip() for one in page.memories)

    async def _correct_exported(self, chunk: list[Item]) -> list[Item]:
        """Correct the memories that entries were exported from; return the other entries."""
        ids = {item.entry.memory_id for item in chunk} - {None}
        if not ids:
            return chunk
        statuses = await self._client.status(sorted(filter(None, ids)))
        here = {one.id for one in statuses if one.status not in {"not_found", "failed"}}
        others = []
        for item in chunk:
            memory_id = item.entry.memory_id
            if memory_id not in here or not await self._correct(item, memory_id):
                others.append(item)
        return others

    async def _correct(self, item: Item, memory_id: str) -> bool:
        """Bring a memory to what its file says now; return False if it is another namespace's."""
        name, revision = self._namespace_of(item), item.entry.revision
        try:
            base = await self._client.get(memory_id, namespace=name, revision=revision)
        except (NotFound, *_CLOSED):
            return False
        if base.namespace != normalise_namespace(name) or base.text is None:
            return False
        try:
            await self._edit(item, base)
        except Conflict as error:
            now = await self._client.get(memory_id, namespace=name)
            if not changes(item.entry.draft, now):  # an earlier run did it
                self._note_known(item, memory_id)
            elif error.code == "memory.revision":
                reason = "it was changed since the export: export it again, and change that"
                self._refuse(item, Invalid("revision", reason))
            else:
                self._refuse(item, error)
        except _REFUSED as error:
            self._refuse(item, error)
        return True

    async def _edit(self, item: Item, base: Memory) -> None:
        changed = changes(item.entry.draft, base)
        if not changed:
            return self._note_known(item, base.id)
        result = await self._client.edit(
            base.id, namespace=base.namespace, revision=item.entry.revision, **changed
        )
        self.done += 1
        item.tally.edited += 1
        item.tally.redacted += secrets_in(result.redacted)
        if self._keep_ids:
            self.ids.append(result.id)

    def _note_known(self, item: Item, memory_id: str) -> None:
        self.done += 1
        item.tally.known += 1
        if self._keep_ids:
            self.ids.append(memory_id)

    def _refuse(self, item: Item, error: MemrelayError) -> None:
        if isinstance(error, _CLOSED):
            self._closed[self._namespace_of(item)] = error
        self.done += 1
        fail(item.tally, Fault(item.entry.place, f"refused: {error}"), self._failed)

    def _tally_one(self, item: Item, result: Remembered) -> None:
        if result.status == REJECTED:
            reason = Invalid(result.code or REJECTED, result.message or "no reason")
            return self._refuse(item, reason)
        tally = item.tally
        self.done += 1
        tally.known += result.duplicate
        tally.stored += not result.duplicate
        tally.redacted += 0 if result.duplicate else secrets_in(result.redacted)
        if self._keep_ids:
            self.ids.append(result.id)

    def _namespace_of(self, item: Item) -> str:
        return self._namespace or item.entry.draft.namespace or self._client.settings.namespace
