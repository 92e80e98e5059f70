"""Stores memories, one or many, from texts and conversations; free of I/O.

It does not own reading (`reads.py`), changing what is stored (`corrections.py`, `deletion.py`)
or who may read (`keyholders.py`).

- A write has an idempotency key, made once per logical call: repeating it stores nothing twice.
- Every receipt that comes with an answer is verified before the answer is returned.

Source: SPEC.md §11.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from memrelay.answers import Answer, rfc3339
from memrelay.errors import TimedOut, UntrustedRelayer
from memrelay.exchange import Each, Operation, Sleep
from memrelay.models import (
    STATES_FINAL,
    Analysis,
    Draft,
    Memory,
    MemoryStatus,
    Remembered,
    Restored,
)
from memrelay.operations.lists import Lists
from memrelay.operations.reads import to_json_list
from memrelay.sealed.keys import normalise_namespace
from memrelay.sealed.receipts import RequestState
from memrelay.session import Call, parse_namespace

BULK_ITEMS_MAX = 20
BULK_ITEM_BYTES_MAX = 64 * 1024  # longer ones go alone; 20 of these stay below a body's 2 MiB
STATUS_IDS_MAX = 100
_BESIDE = frozenset({"state", "forget"})
_FIRST = 1  # the revision of what is new

REJECTED = "rejected"

Progress = Callable[[int, int | None], None]
Item = str | Draft | Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ManyRemembered(Answer):
    """The outcome of many memories, in their order; receipts are for all that are new."""

    results: tuple[Mapping[str, Any], ...]
    receipts: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Beside(Answer):
    """The receipts of what a write did beside storing: of states and erasures."""

    other_receipts: tuple[str, ...] | None = None


class Writes(Lists):
    """The operations that store memories, and all that read them."""

    def remember(
        self,
        text: str,
        *,
        namespace: str | None = None,
        kind: str | None = None,
        tags: Iterable[str] | None = None,
        source: str | None = None,
        event_time: datetime | str | None = None,
        metadata: Mapping[str, Any] | None = None,
        importance: str | None = None,
        confidence: str | None = None,
        expires_at: datetime | str | None = None,
        idempotency_key: str | None = None,
    ) -> Operation[Remembered]:
        """Store one memory; when this returns, it is durable and found by its words."""
        draft = Draft(
            text=text,
            namespace=namespace,
            kind=kind,
            tags=tags,
            source=source,
            event_time=event_time,
            metadata=metadata,
            importance=importance,
            confidence=confidence,
            expires_at=expires_at,
            idempotency_key=idempotency_key,
        )
        return (yield from self._remember_one(self._body(draft)))

    def _remember_one(self, body: dict[str, Any]) -> Operation[Remembered]:
        asked = self.session.note_request([body["namespace"]])
        answer = yield from self.session.call(
            Call(
                method="POST",
                path="/v1/remember",
                body=body,
                unlock=[body["namespace"]],
                repeatable=True,
                names_relayer=True,
            )
        )
        result = Remembered.from_json(answer)
        receipts = () if result.receipt is None else (result.receipt,)
        yield from self._check_receipts(receipts, [result], [body], asked)
        yield from self.note_others(answer, asked)
        return result

    def remember_many(
        self,
        items: Iterable[Item],
        *,
        namespace: str | None = None,
        progress: Progress | None = None,
        concurrency: int = 4,
    ) -> Operation[tuple[Remembered, ...]]:
        """Store many memories in requests of up to 20; the results are in the order of `items`.

        `items` are texts, `Draft`s or mappings with a draft's fields; of a memory as it was read,
        the others are left out. `progress` is called with the
        number stored so far and the total, if known. `concurrency` requests are under way at once
        (the blocking client has one). An item that is out of range has the status `rejected` and
        says why. The first error ends it; what was stored stays stored.

        Raises:
            ValueError: `items` is one text or mapping, or an item has a field that no memory has.
        """
        if isinstance(items, (str, Mapping)):
            raise ValueError("items is a list of memories, not one memory.")
        total = len(items) if isinstance(items, (list, tuple)) else None
        done = 0

        def store(bodies: list[dict[str, Any]]) -> Operation[tuple[Remembered, ...]]:
            nonlocal done
            results = yield from self._remember_bulk(bodies)
            done += len(results)
            if progress is not None:
                progress(done, total)
            return results

        if (yield from self.session.is_sealed()):
            # Fetched once here, not by each of the concurrent requests.
            yield from self.session.statement()
            yield from self.session.keyring()
        bodies = (self._body(_draft(item, namespace)) for item in items)
        operations = (store(chunk) for chunk in _chunks(bodies))
        chunks: list[tuple[Remembered, ...]] = yield Each(operations, max(1, concurrency))
        return tuple(result for chunk in chunks for result in chunk)

    def _remember_bulk(self, bodies: list[dict[str, Any]]) -> Operation[tuple[Remembered, ...]]:
        if len(bodies) == 1:
            return ((yield from self._remember_one(bodies[0])),)
        asked = self.session.note_request(body["namespace"] for body in bodies)
        answer = yield from self.session.call(
            Call(
                method="POST",
                path="/v1/remember/bulk",
                body={"items": bodies},
                unlock={body["namespace"] for body in bodies},
                repeatable=True,
                names_relayer=True,
            )
        )
        stored = ManyRemembered.from_json(answer)
        if len(stored.results) != len(bodies):
            raise UntrustedRelayer("results", "The relayer answered for other items than it got.")
        results = tuple(map(_one_of_many, stored.results, bodies))
        yield from self._check_receipts(stored.receipts or (), results, bodies, asked)
        yield from self.note_others(answer, asked)
        return results

    def _check_receipts(
        self,
        receipts: Iterable[str],
        results: Iterable[Remembered],
        bodies: Iterable[Mapping[str, Any]],
        asked: RequestState,
    ) -> Operation[None]:
        """Check that every new memory is one of its own, in a receipt for its namespace."""
        recorded = yield from self._read_recorded(receipts, op="remember", asked=asked)
        for result, body in zip(results, bodies, strict=True):
            namespace = normalise_namespace(body["namespace"])
            if parse_namespace(result.namespace) != namespace:
                raise UntrustedRelayer("namespace", "The relayer answered for another namespace.")
            if result.duplicate or result.status == REJECTED:
                continue
            # Once only: with one receipt for two, one of them might be lost.
            if (stored := (result.id, _FIRST, namespace)) not in recorded:
                raise UntrustedRelayer("receipt", "A new memory came without its receipt.")
            recorded.remove(stored)

    def _read_recorded(
        self, receipts: Iterable[str], *, op: str, asked: RequestState
    ) -> Operation[set[tuple[str, int, str | None]]]:
        """Return the ids, revisions and namespaces that these receipts vouch for, each verified."""
        recorded: set[tuple[str, int, str | None]] = set()
        for text in receipts:
            receipt = yield from self.session.note_receipt(text, op=op, asked=asked)
            recorded |= {(item[0], item[1], receipt.namespace) for item in receipt.items}
        return recorded

    def read_recorded_ids(
        self, receipts: Iterable[str], *, op: str, asked: RequestState
    ) -> Operation[set[str]]:
        """Return the ids that these receipts vouch for, each verified."""
        return {one for one, _, _ in (yield from self._read_recorded(receipts, op=op, asked=asked))}

    def wait(
        self, ids: Iterable[str], *, timeout_s: float = 60.0, until_uploaded: bool = False
    ) -> Operation[tuple[MemoryStatus, ...]]:
        """Wait until memories are done (found by vector too), failed or gone; asks ever less often.

        With `until_uploaded`, being stored and found by keyword is enough.

        Raises:
            TimedOut: some are still under way after `timeout_s`.
        """
        until_s = self.session.monotonic() + timeout_s
        order = tuple(to_json_list("ids", ids) or ())
        final = STATES_FINAL | ({"uploaded"} if until_uploaded else set())
        known: dict[str, MemoryStatus] = {}
        pause_s = 0.1
        while True:
            open_ids = [one for one in order if one not in known or known[one].status not in final]
            asked = set(open_ids)
            for start in range(0, len(open_ids), STATUS_IDS_MAX):
                for status in (yield from self.status(open_ids[start : start + STATUS_IDS_MAX])):
                    if status.id in asked:
                        known[status.id] = status
            if all(one in known and known[one].status in final for one in order):
                return tuple(known[one] for one in order)
            if self.session.monotonic() + pause_s > until_s:
                raise TimedOut("Some memories are still under way.")
            yield Sleep(pause_s)
            pause_s = min(5.0, pause_s * 1.5)

    def analyze(
        self,
        text: str,
        *,
        namespace: str | None = None,
        occurred_at: datetime | str | None = None,
        source: str | None = None,
        idempotency_key: str | None = None,
    ) -> Operation[Analysis]:
        """Find the facts worth keeping in a text or conversation, and store them.

        Dates such as "yesterday" are resolved against `occurred_at`, when it is given: its day is
        that of its own time zone.
        """
        body = {
            "text": text,
            "occurred_at": None if occurred_at is None else rfc3339(occurred_at, zoned=True),
            "source": source,
            "idempotency_key": idempotency_key or str(uuid4()),
        }
        asked = self.session.note_request([self.namespace_of(namespace)])
        answer = yield from self.post("/v1/analyze", namespace, body, names_relayer=True)
        return (yield from self.note_analysis(answer, asked))

    def note_analysis(self, answer: Mapping[str, Any], asked: RequestState) -> Operation[Analysis]:
        """Return what a conversation became; every new fact stands in a receipt.

        Raises:
            UntrustedRelayer: one does not, or a receipt is false.
        """
        result = Analysis.from_json(answer)
        recorded = yield from self._read_recorded(result.receipts, op="analyze", asked=asked)
        new = {one for one, revision, _ in recorded if revision == _FIRST}
        if not new.issuperset(fact.id for fact in result.facts if not fact.duplicate):
            raise UntrustedRelayer("receipt", "A new fact stands in no receipt.")
        yield from self.note_others(answer, asked)
        return result

    def note_others(self, answer: Mapping[str, Any], asked: RequestState) -> Operation[None]:
        """Verify the receipts of what a write did beside storing: of states and erasures."""
        for text in Beside.from_json(answer).other_receipts or ():
            yield from self.session.note_receipt(text, op=_BESIDE, asked=asked)

    def restore(
        self, *, namespace: str | None = None, limit: int | None = None
    ) -> Operation[Restored]:
        """Rebuild a namespace's index from its stored objects."""
        answer = yield from self.post(
            "/v1/restore", namespace, {"limit": limit}, names_relayer=True
        )
        return Restored.from_json(answer)

    def _body(self, draft: Draft) -> dict[str, Any]:
        named = replace(
            draft,
            namespace=self.namespace_of(draft.namespace),
            idempotency_key=draft.idempotency_key or str(uuid4()),
        )
        return named.body()


def _one_of_many(entry: Mapping[str, Any], body: Mapping[str, Any]) -> Remembered:
    """Return what became of an item; one that was refused has no id."""
    if entry.get("status") == REJECTED:
        entry = {**entry, "id": "", "namespace": body["namespace"]}
    return Remembered.from_json(entry)


def _draft(item: Item, namespace: str | None) -> Draft:
    if isinstance(item, str):
        item = Draft(text=item)
    elif not isinstance(item, Draft):
        known = {entry.name for entry in fields(Draft)}
        # A memory as it was read or exported may be stored; what is misspelt would be lost.
        if unknown := item.keys() - known - {entry.name for entry in fields(Memory)}:
            raise ValueError(f"A memory has no field {', '.join(sorted(unknown))}.")
        item = Draft(**{name: value for name, value in item.items() if name in known})
    return item if item.namespace is not None else replace(item, namespace=namespace)


def _chunks(bodies: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    chunk: list[dict[str, Any]] = []
    for body in bodies:
        alone = len(json.dumps(body, ensure_ascii=False).encode()) > BULK_ITEM_BYTES_MAX
        if chunk and (alone or len(chunk) == BULK_ITEMS_MAX):
            yield chunk
            chunk = []
        if alone:
            yield [body]
        else:
            chunk.append(body)
    if chunk:
        yield chunk
