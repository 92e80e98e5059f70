"""Events of an account, as others are told: those that a receipt stands for.

Not here: who is told (`delivery.py`, `streams.py`).

- An event names ids and a namespace, never a text, a tag or a key: all of it stands in receipts.
- The same receipt gives the same events with the same ids, whoever tells them and how often.
  Another one of the same number, of a database that was set back, gives others.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from relayer.clock import rfc3339_ms
from relayer.database.webhooks import INDEXED
from relayer.sealed.keys import AccountId, Namespace, account_text
from relayer.sealed.primitives import blake2b_128
from relayer.sealed.receipts import Item, Receipt, chain_hash

WRITTEN: Final = "memory.written"
EXTRACTED: Final = "episode.extracted"
FAILED: Final = "memory.failed"
TEST: Final = "webhook.test"
_OF_OPERATION: Final[Mapping[str, str]] = {
    "remember": WRITTEN,
    "analyze": WRITTEN,
    "restore": WRITTEN,
    "import": WRITTEN,
    "edit": "memory.edited",
    "state": "memory.state_changed",
    "consolidate": "memory.consolidated",
    "reseal": "memory.resealed",
    "forget": "memory.erased",
    "expire": "memory.expired",
    "grant": "key.granted",
    "revoke": "key.revoked",
    "rebuild": "account.rebuilt",
}
PLACE_DIGITS: Final = 16  # enough to tell the few receipts apart that ever had one number
TYPES: Final = frozenset([*_OF_OPERATION.values(), EXTRACTED, INDEXED])


@dataclass(frozen=True)
class Event:
    """One thing that happened; `seq` is the receipt's that says so, None where there is none."""

    id: uuid.UUID
    account: AccountId
    type: str
    time_ms: int
    namespace: Namespace | None
    ids: tuple[uuid.UUID, ...]
    seq: int | None = None


@dataclass(frozen=True)
class Position:
    """The place that somebody was told up to: a receipt's number and the beginning of its hash."""

    seq: int
    name: str | None = None

    @classmethod
    def of(cls, seq: int, digest: bytes) -> "Position":
        """Return the place of a receipt."""
        return cls(seq, digest.hex()[:PLACE_DIGITS])

    def __str__(self) -> str:
        return f"{self.seq}-{self.name}" if self.name else str(self.seq)


def events_of(receipt: Receipt, signed: bytes) -> list[Event]:
    """Return the events of a signed receipt, in order; none for the last of an account."""
    gone = [i for i in receipt.items if receipt.op == "analyze" and not i.revision]
    kept = [i for i in receipt.items if i not in gone]
    events = []
    if (kind := _OF_OPERATION.get(receipt.op)) is not None and (kept or not receipt.items):
        events.append(_event(receipt, signed, kind, kept))
    if gone:
        events.append(_event(receipt, signed, EXTRACTED, gone))
    return events


def _event(receipt: Receipt, signed: bytes, kind: str, items: Iterable[Item]) -> Event:
    return Event(
        id=event_id(receipt.account, kind, chain_hash(signed).hex()),
        account=receipt.account,
        type=kind,
        time_ms=receipt.time_ms,
        namespace=receipt.namespace,
        ids=tuple(dict.fromkeys(i.memory for i in items)),
        seq=receipt.seq,
    )


def event_id(account: AccountId, kind: str, name: str) -> uuid.UUID:
    """Return the id of an event, always the same for the same account, type and name."""
    digest = blake2b_128(account + f"{kind} {name}".encode())
    value = int.from_bytes(digest, "big")
    value = value & ~(0xF << 76) | 8 << 76
    return uuid.UUID(int=value & ~(0x3 << 62) | 2 << 62)


def event_shape(event: Event) -> dict[str, Any]:
    """Return an event as others see it."""
    return {
        "id": str(event.id),
        "type": event.type,
        "account_id": account_text(event.account),
        "time": rfc3339_ms(event.time_ms),
        "namespace": event.namespace,
        "ids": [str(i) for i in event.ids],
        "receipt_seq": event.seq,
    }
