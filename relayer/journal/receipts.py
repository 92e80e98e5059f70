"""Signing what was done, each receipt tied to the one before it.

Not here: the format (`sealed.receipts`), when a receipt is due (`memories/writer.py`,
`memories/eraser.py`, `tenants/granting.py`), storing it.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

from relayer.clock import to_ms
from relayer.database.accounts import Heads
from relayer.sealed.keys import AccountId, Identity, Namespace, PublicKey
from relayer.sealed.primitives import to_base64url
from relayer.sealed.receipts import Item, Receipt, chain_hash, sign_receipt


@dataclass(frozen=True)
class Operation:
    """An operation: the name of what was done, by whom and when."""

    account: AccountId
    actor: PublicKey
    op: str
    time: datetime


@dataclass(frozen=True)
class ReceiptItem:
    """A revision of a memory, an episode or a signed object, with the namespace of its receipt."""

    memory_id: uuid.UUID
    revision: int
    blob_id: bytes
    namespace_id: int
    epoch: int


def sign_receipts(
    identity: Identity,
    operation: Operation,
    heads: Heads,
    done: Iterable[ReceiptItem],
    names: Mapping[int, Namespace],
) -> tuple[list[tuple[int, bytes]], Heads]:
    """Return one (seq, receipt) per namespace and epoch of what was done, and the heads then."""
    ordered = sorted(done, key=lambda s: (s.namespace_id, s.epoch))
    receipts: list[tuple[int, bytes]] = []
    for (number, epoch), group in groupby(ordered, key=lambda s: (s.namespace_id, s.epoch)):
        items = tuple(Item(s.memory_id, s.revision, to_base64url(s.blob_id)) for s in group)
        signed, heads = next_receipt(identity, operation, heads, items, names[number], epoch)
        receipts.append((heads.receipt_seq, signed))
    return receipts, heads


def next_receipt(
    identity: Identity,
    operation: Operation,
    heads: Heads,
    items: tuple[Item, ...],
    namespace: Namespace | None = None,
    epoch: int | None = None,
) -> tuple[bytes, Heads]:
    """Return the receipt that follows these heads, and the heads after it.

    Its time is never before that of the receipt in front of it, whatever clock timed the operation.
    """
    time = heads.time(operation.time)
    receipt = Receipt(
        account=operation.account,
        seq=heads.receipt_seq + 1,
        previous=heads.receipt_head,
        time_ms=to_ms(time),
        op=operation.op,
        actor=operation.actor,
        namespace=namespace,
        epoch=epoch,
        items=items,
        serial=heads.grant_serial,
    )
    signed = sign_receipt(identity, receipt)
    after = replace(
        heads, receipt_seq=receipt.seq, receipt_head=chain_hash(signed), changed_at=time
    )
    return signed, after
