"""Telling webhooks what happened: what each is still to be told, one after the other, signed.

Not here: which events there are (`event.py`), where a webhook may be (`egress.py`), who has one
(`webhooks.py`).

- A receipt is in the database with what it tells of or not at all, so reading them in order misses
  nothing. Each webhook is told in that order, at least once; its id tells what came twice.
- No database connection is held while somebody else's server thinks.
- A webhook that fails is tried ever less often for a day and then paused; its owner sees why.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import time
import uuid
from collections import Counter
from datetime import datetime, timedelta
from typing import Final

from relayer.clock import Clock, to_ms
from relayer.database import accounts as account_rows
from relayer.database import webhooks as rows
from relayer.database.pool import Database, Row
from relayer.errors import BadRequest, Corrupted
from relayer.events.egress import Busy, Poster, Undelivered, parse_target
from relayer.events.event import TEST, Event, event_id, event_shape, events_of
from relayer.events.webhooks import Address, open_address, wants
from relayer.logs import warn
from relayer.sealed.keys import AccountId, Identity, Namespace, PublicKey
from relayer.sealed.primitives import CryptoError
from relayer.sealed.receipts import open_receipt
from relayer.telemetry.instruments import POSTS_FAILED, POSTS_TAKEN

log = logging.getLogger("relayer.delivery")

AT_ONCE_MAX: Final = 16  # webhooks of one process
ACCOUNT_MAX: Final = 4  # of these, so that an account whose webhooks are slow delays only its own
POLL_S: Final = 1.0
SLICE_S: Final = 20.0  # of one webhook before others have their turn
LEASE_S: Final = 60  # longer than a slice and the post that it ends with
PAGE: Final = 50
RETRY_S: Final = 5.0
RETRY_S_MAX: Final = 3_600.0
GIVE_UP: Final = timedelta(hours=24)


class Delivery:
    """Tells the webhooks of all accounts what happened; several processes share the work."""

    def __init__(
        self,
        *,
        database: Database,
        identity: Identity,
        relayers: tuple[PublicKey, ...],
        poster: Poster,
        clock: Clock,
    ) -> None:
        self._database = database
        self._identity = identity
        self._relayers = relayers
        self._poster = poster
        self._clock = clock
        self._telling: dict[asyncio.Task[None], AccountId] = {}

    async def run(self) -> None:
        """Tell until cancelled; whatever fails is said and begun again."""
        try:
            while True:
                try:
                    await self._begin()
                except Exception as error:
                    # One that ended silently would leave every webhook without its events.
                    warn(log, "telling waits", "webhooks.wait", error)
                await asyncio.sleep(POLL_S)
        finally:
            for task in self._telling:
                task.cancel()
            await asyncio.gather(*self._telling, return_exceptions=True)
            await self._poster.close()

    async def deliver(self) -> None:
        """Begin to tell what is due, and wait until all that was begun is done."""
        await self._begin()
        await asyncio.gather(*self._telling)

    async def _begin(self) -> None:
        free = AT_ONCE_MAX - len(self._telling)
        if self._poster.reach == "none" or free <= 0:
            return
        telling = Counter(self._telling.values())
        full = [account for account, count in telling.items() if count >= ACCOUNT_MAX]
        for account, webhook_id in await rows.due(
            self._database, self._clock(), limit=free, each=ACCOUNT_MAX, full=full
        ):
            if telling[account] >= ACCOUNT_MAX:
                continue
            telling[account] += 1
            task = asyncio.create_task(self._tell_safely(account, webhook_id))
            self._telling[task] = account
            task.add_done_callback(self._telling.pop)

    async def _tell_safely(self, account: AccountId, webhook_id: uuid.UUID) -> None:
        """Tell one webhook; its faults are its own."""
        now = self._clock()
        lease = rows.Lease(account, webhook_id, now + timedelta(seconds=LEASE_S))
        try:
            if (row := await rows.lease(self._database, lease, now)) is None:
                return
            try:
                await self._tell(lease, row)
            except Busy:  # not its fault: it is due still
                await rows.release(self._database, lease)
            except Undelivered as failure:
                await self._put_off(lease, failure)
            except (BadRequest, Corrupted) as error:  # it may not be called any more
                await self._put_off(lease, Undelivered(error.code))
            else:
                await rows.release(self._database, lease)
        except Exception as error:
            warn(log, "telling waits", "webhooks.wait", error)

    async def _tell(self, lease: rows.Lease, row: Row) -> None:
        """Tell one webhook what waits for it, in order, for as long as its slice lasts.

        Raises:
            Undelivered: it was not taken.
        """
        address = open_address(self._identity, lease.account, lease.webhook_id, row["sealed"])
        until = time.monotonic() + SLICE_S
        seq = row["delivered_seq"]
        while True:
            noted = await rows.find_noted(
                self._database, lease.account, lease.webhook_id, seq, PAGE
            )
            page = await account_rows.find_receipts(self._database, lease.account, seq, PAGE)
            if not (noted or page):
                return
            for entry in noted:
                wanted = _select_wanted(row, [_to_event(lease.account, entry)])
                # Whoever changed the webhook meanwhile is to have it at its new address.
                if not await self._deliver(lease, address, wanted, seq):
                    return
                await rows.delete_noted(self._database, lease.account, lease.webhook_id, entry)
                if time.monotonic() >= until:
                    return
            for seq, signed in page:
                wanted = _select_wanted(row, self._events(signed, lease.account))
                if wanted and not await self._deliver(lease, address, wanted, seq):
                    return
                if time.monotonic() >= until:
                    return
            if not await self._deliver(lease, address, [], seq):
                return

    async def _deliver(
        self, lease: rows.Lease, address: Address, wanted: list[Event], seq: int
    ) -> bool:
        """Tell events, and note that all up to there was told; whether the lease still holds."""
        for event in wanted:
            await self._post(address, event)
        now = self._clock() if wanted else None
        return await rows.get_on(self._database, lease, seq, now)

    def _events(self, signed: bytes, account: AccountId) -> list[Event]:
        """Return the events of a receipt; none when it is none of this account's."""
        try:
            receipt = open_receipt(signed, *self._relayers)
        except CryptoError:
            log.error("a receipt was altered", extra={"event": "webhooks.corrupted"})
            return []
        return events_of(receipt, signed) if receipt.account == account else []

    async def _post(self, address: Address, event: Event) -> int:
        target = parse_target(address.url, self._poster.reach)
        body = json.dumps(event_shape(event), ensure_ascii=False, separators=(",", ":")).encode()
        headers = sign_headers(address.secret, event.id, self._clock(), body)
        status = await self._poster.post(target, body, headers, account=event.account)
        POSTS_TAKEN.inc()
        return status

    async def _put_off(self, lease: rows.Lease, failure: Undelivered) -> None:
        said = {"webhook_id": str(lease.webhook_id), "problem": failure.problem}
        log.info("a webhook failed", extra={"event": "webhooks.failed"} | said)
        POSTS_FAILED.inc()
        await rows.put_off(
            self._database,
            lease,
            now=self._clock(),
            problem=failure.problem,
            gone=failure.gone,
            retry=rows.Retry(RETRY_S, RETRY_S_MAX, GIVE_UP),
        )

    async def try_out(self, account: AccountId, webhook_id: uuid.UUID, address: Address) -> int:
        """Tell a webhook that this is a test; the status of its answer.

        Raises:
            Undelivered: it was not taken.
        """
        now = self._clock()
        name = f"{webhook_id} {uuid.uuid4()}"
        event = Event(event_id(account, TEST, name), account, TEST, to_ms(now), None, ())
        return await self._post(address, event)


def _select_wanted(row: Row, events: list[Event]) -> list[Event]:
    return [event for event in events if wants(row, event.type, event.namespace)]


def _to_event(account: AccountId, entry: Row) -> Event:
    """Return the event of an entry that has no receipt."""
    return Event(
        id=event_id(account, entry["type"], f"{entry['event_id']} {entry['namespace_id']}"),
        account=account,
        type=entry["type"],
        time_ms=to_ms(entry["created_at"]),
        namespace=Namespace(entry["namespace"]),
        ids=tuple(entry["ids"]),
    )


def sign_headers(secret: bytes, event: uuid.UUID, now: datetime, body: bytes) -> dict[str, str]:
    """Return the headers of a post, as Standard Webhooks has them. Source: SPEC §18."""
    seconds = str(int(now.timestamp()))
    signed = f"{event}.{seconds}.".encode() + body
    digest = hmac.digest(secret, signed, hashlib.sha256)
    return {
        "content-type": "application/json",
        "user-agent": "memrelay",
        "webhook-id": str(event),
        "webhook-timestamp": seconds,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
