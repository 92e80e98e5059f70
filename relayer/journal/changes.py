"""One change of an account, as everything sees it that takes part in it, and its receipts.

Not here: how one begins and ends (`tenants/ledger.py`), what it does (`memories/`, `states.py`),
the format of receipts (`sealed.receipts`).

- A change has one time. All that it stores and signs says that one.
- Each receipt is tied to the one before it.
- Where the account's sequences and its chain of receipts stand, only this module moves. Who stores
  receipts stores `receipt_seq` and `receipt_head` beside them.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

from relayer.clock import Clock, to_ms
from relayer.database.accounts import Heads, lock_heads
from relayer.database.pool import Connection
from relayer.sealed.keys import AccountId, Identity, Namespace, PublicKey
from relayer.sealed.named import NamedKey, sign_namespace
from relayer.sealed.primitives import to_base64url
from relayer.sealed.receipts import Item, Receipt, chain_hash, sign_receipt
from relayer.sealed.states import SignedState, sign_state


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


@dataclass(frozen=True)
class Signing:
    """The signer and its clock, and whether blobs and journal lie outside the database."""

    identity: Identity
    clock: Clock
    outside_store: bool


class AccountChange:
    """A change of an account, under its lock until the transaction of `connection` ends.

    Attributes:
        account: the account that is changed.
        actor: whose change it is, as its receipts say.
        op: what receipts say was done, unless they are given another operation.
        time: when it is made: behind all changes before.
        epoch: the account's newest one.
        grant_serial: the serial of the account's newest grant or revocation.
        memory_seq: the last place in the sequence of memories that is taken.
        receipt_seq: the number of the newest receipt.
        receipt_head: the hash that the next receipt names as the one before it.
        used_bytes: those that count for the quota, as they were at the lock or at `reread`.
        outside_store: whether blobs and journal lie outside the database.
        has_objects: whether it put any object into the journal, which has to be published then.
    """

    def __init__(
        self,
        connection: Connection,
        signing: Signing,
        operation: Operation,
        heads: Heads,
    ) -> None:
        self.connection = connection
        self.account = operation.account
        self.actor = operation.actor
        self.op = operation.op
        self.time = operation.time
        self.outside_store = signing.outside_store
        self.has_objects = False
        self._signing = signing
        self._stand_at(heads)

    def sign(
        self,
        items: Iterable[ReceiptItem],
        names: Mapping[int, Namespace],
        *,
        op: str | None = None,
    ) -> list[tuple[int, bytes]]:
        """Sign one receipt (seq, signed) per namespace and epoch, over what was done there."""
        receipts, heads = sign_receipts(
            self._signing.identity, self._operation(op), self._heads, items, names
        )
        self._stand_at(heads)
        return receipts

    def sign_items(
        self,
        items: Iterable[Item],
        namespace: Namespace | None = None,
        epoch: int | None = None,
        *,
        op: str | None = None,
    ) -> tuple[int, bytes]:
        """Sign one receipt (seq, signed) over these items, of one namespace and epoch or none."""
        signed, heads = next_receipt(
            self._signing.identity, self._operation(op), self._heads, tuple(items), namespace, epoch
        )
        self._stand_at(heads)
        return self.receipt_seq, signed

    def sign_state(self, state: SignedState) -> bytes:
        """Sign the journal's object that says what holds of a memory."""
        return sign_state(self._signing.identity, state)

    def sign_namespace(self, named: NamedKey) -> bytes:
        """Sign the journal's object that names a namespace and its key's id."""
        return sign_namespace(self._signing.identity, named)

    def continue_grants(self, serial: int) -> None:
        """Let receipts from now on name this serial as that of the newest grant."""
        self._stand_at(replace(self._heads, grant_serial=serial))

    def take_place(self) -> int:
        """Take the next place in the sequence of memories."""
        self._stand_at(replace(self._heads, memory_seq=self.memory_seq + 1))
        return self.memory_seq

    def take_time(self) -> None:
        """Take the time anew, where what came first may have taken long."""
        self.time = self._heads.time(self._signing.clock())

    async def reread(self) -> None:
        """Read again what the account's row says, once statements have changed it."""
        self._stand_at(await lock_heads(self.connection, self.account))

    def _stand_at(self, heads: Heads) -> None:
        self._heads = heads
        self.epoch = heads.epoch
        self.grant_serial = heads.grant_serial
        self.memory_seq = heads.memory_seq
        self.receipt_seq = heads.receipt_seq
        self.receipt_head = heads.receipt_head
        self.used_bytes = heads.used_bytes

    def _operation(self, op: str | None) -> Operation:
        return Operation(self.account, self.actor, op or self.op, self.time)
