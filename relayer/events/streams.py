"""A stream of events: what happens to an account, told to one of its keys as it happens.

Not here: which events there are (`event.py`), the route (`routes.events`).

- A key is told of the namespaces it may read, and of keys only if it may see the whole account; it
  is looked at again every second, so that a revocation ends the stream.
- Receipts are read in order, a page at a time, once the last page was taken: a slow reader costs
  nothing. No database connection is held in between.
- Whether memories have vectors has no receipt: it is told of those that were written, or still
  waited, while the stream was open.
"""

import asyncio
import json
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import datetime
from typing import Final

from relayer.clock import Clock, to_ms
from relayer.database import accounts as account_rows
from relayer.database import memories as memory_rows
from relayer.database.pool import Database
from relayer.database.webhooks import INDEXED
from relayer.errors import NotFound, RateLimited, RelayerError
from relayer.events.event import FAILED, WRITTEN, Event, Position, event_id, event_shape, events_of
from relayer.sealed.keys import Namespace, PublicKey
from relayer.sealed.primitives import CryptoError
from relayer.sealed.receipts import chain_hash, open_receipt
from relayer.settings import Limits
from relayer.tenants.accounts import Access, Accounts

POLL_S: Final = 1.0
BEAT_S: Final = 15.0
PAGE: Final = 100
AT_ONCE: Final = 5  # receipts that are verified before others have their turn
WATCHED_MAX: Final = 1_000  # memories whose vectors are waited for, the newest
RETRY_MS: Final = 1_000  # after which a reader that lost the stream connects again
_FINAL: Final = {"done": INDEXED, "failed": FAILED}


class Streams:
    """Opens streams, so many at once; `stopping` ends them all."""

    def __init__(
        self,
        *,
        database: Database,
        accounts: Accounts,
        relayers: tuple[PublicKey, ...],
        embeds: bool,
        stopping: asyncio.Event,
        clock: Clock,
    ) -> None:
        self._database = database
        self._accounts = accounts
        self._relayers = relayers
        self._embeds = embeds
        self._stopping = stopping
        self._clock = clock
        self._open: Counter[bytes] = Counter()

    async def open(
        self, access: Access, after: Position | None, *, follow: bool = True
    ) -> AsyncGenerator[bytes]:
        """Yield the events after a receipt, or from now on, as `text/event-stream`.

        All of them after one that the account does not have: it was told by a relayer whose
        database was set back or lost since, and nobody knows where the two histories part.

        Without `follow`, it ends with what happened so far, and says that it does.

        Raises:
            RateLimited: too many streams are open.
            NotFound: the account is gone.
        """
        place = await self._place(access, after)
        of_account = self._open[access.account] >= Limits.streams_of_account_max
        if of_account or self._open.total() >= Limits.streams_max:
            raise RateLimited(
                "Too many streams are open.", code="events.too_many", retry_after_s=30
            )
        told = self._stream(access, place, follow)
        await anext(told)
        return told

    async def _place(self, access: Access, after: Position | None) -> Position:
        row = await account_rows.find_account(self._database, access.account)
        if row is None:
            raise NotFound("No such account.")
        if after is None:
            return Position.of(row["receipt_seq"], row["receipt_head"])
        page = await account_rows.find_receipts(self._database, access.account, after.seq - 1, 1)
        found = [Position.of(seq, chain_hash(signed)) for seq, signed in page if seq == after.seq]
        known = found and after.name in {None, found[0].name}
        return found[0] if known else Position(0)

    async def _stream(self, access: Access, place: Position, follow: bool) -> AsyncGenerator[bytes]:
        """Yield the stream; its first part is empty and says that it has its place.

        One that has begun is ended for certain, also if nobody reads it, and gives its place back.
        """
        self._open[access.account] += 1
        try:
            yield b""
            yield f"retry: {RETRY_MS}\n{_lines(place)}\n".encode()
            async for part in self._parts(access, place, follow):
                yield part
        except RelayerError:
            return  # the answer has begun: whoever connects again is told
        finally:
            self._open[access.account] -= 1
            self._open += Counter()  # nothing is kept of accounts without a stream

    async def _parts(self, access: Access, place: Position, follow: bool) -> AsyncIterator[bytes]:
        watch = _Watch()
        ends = time.monotonic() + Limits.stream_life_s
        beat = time.monotonic() + BEAT_S
        while not self._stopping.is_set() and time.monotonic() < ends:
            page = await account_rows.find_receipts(self._database, access.account, place.seq, PAGE)
            for number, (seq, signed) in enumerate(page, 1):
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)
                place = Position.of(seq, chain_hash(signed))
                if events := self._visible(access, signed):
                    watch.begin(events, follow=follow)
                    yield _frame(events, place)
            if not page:
                for event in await self._settle(access, watch):
                    yield _frame([event], None)
                if not follow:
                    yield _frame_position(place, "end")
                    return
                await self._rest()
            if time.monotonic() >= beat:
                beat = time.monotonic() + BEAT_S
                yield _frame_position(place, "beat")
            if (again := await self._accounts.access(access.account, access.key)) is None:
                return
            access = again

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(POLL_S):
                await self._stopping.wait()
        except TimeoutError:
            return

    def _visible(self, access: Access, signed: bytes) -> list[Event]:
        """Return the events of a receipt that this key may see; none of one that was altered."""
        try:
            receipt = open_receipt(signed, *self._relayers)
        except CryptoError:
            return []
        if receipt.account != access.account or not access.strength(receipt.namespace):
            return []
        return events_of(receipt, signed)

    async def _settle(self, access: Access, watch: "_Watch") -> list[Event]:
        """Return the events of written memories that have their vectors now, or never will."""
        if not self._embeds or not watch.waiting:
            return []
        now = self._clock()
        found = await memory_rows.states(
            self._database, account=access.account, ids=list(watch.waiting), embeds=True, now=now
        )
        return watch.settle(access, {i: r["state"] for i, r in found.items()}, now)


class _Watch:
    """Memories that a stream told of and whose vectors are still to come."""

    def __init__(self) -> None:
        self.waiting: dict[uuid.UUID, Namespace] = {}

    def begin(self, events: list[Event], *, follow: bool) -> None:
        for event in events:
            if follow and event.type == WRITTEN and event.namespace is not None:
                self.waiting |= dict.fromkeys(event.ids, event.namespace)
        while len(self.waiting) > WATCHED_MAX:
            del self.waiting[next(iter(self.waiting))]

    def settle(self, access: Access, states: dict[uuid.UUID, str], now: datetime) -> list[Event]:
        groups: dict[tuple[str, Namespace], list[uuid.UUID]] = {}
        for memory_id, namespace in list(self.waiting.items()):
            state = states.get(memory_id, "gone")
            if state in _FINAL or state == "gone":
                del self.waiting[memory_id]
            if state in _FINAL and access.strength(namespace):
                groups.setdefault((_FINAL[state], namespace), []).append(memory_id)
        return [
            Event(
                id=event_id(access.account, kind, " ".join(map(str, ids))),
                account=access.account,
                type=kind,
                time_ms=to_ms(now),
                namespace=namespace,
                ids=tuple(ids),
            )
            for (kind, namespace), ids in groups.items()
        ]


def _frame(events: list[Event], place: Position | None) -> bytes:
    """Return events as a stream has them; only the last of a receipt says how far the reader is."""
    text = "".join(
        f"event: {event.type}\ndata: {json.dumps(event_shape(event))}\n\n" for event in events
    )
    if place is not None:
        head, _, last = text.rpartition("event: ")
        text = f"{head}{_lines(place)}event: {last}"
    return text.encode()


def _frame_position(place: Position, sign: str) -> bytes:
    """Return a sign of life, or the end, and how far the reader is, whatever it was not shown."""
    return f": {sign}\n{_lines(place)}\n".encode()


def _lines(place: Position) -> str:
    # Clients of earlier releases take nothing but a number for an id.
    return f"id: {place.seq}\nplace: {place}\n"
