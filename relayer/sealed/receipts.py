"""Receipts, their hash chain, and the other objects a relayer signs. Source: SPEC §4.3, §6, §15.

Not here: when a receipt is due (`memories/writer.py`, `memories/eraser.py`, `tenants/granting.py`)
and its row lock (`database.accounts`); which keys a relayer has had (`sealed.succession`).

- A chain is signed by the keys of one relayer, oldest first: where a newer one has signed, an older
  one never signs again.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from relayer.sealed.keys import (
    EPOCH_MAX,
    AccountId,
    Identity,
    Namespace,
    PublicKey,
    account_text,
    parse_account,
    parse_public_key,
    settled_namespace,
)
from relayer.sealed.objects import (
    claimed,
    integer_member,
    open_object,
    sign_object,
    text_member,
    uuid_member,
)
from relayer.sealed.primitives import CryptoError, blake2b_256

FIRST_PREVIOUS: Final = bytes(32)
OPERATIONS: Final = frozenset(
    "remember analyze restore edit state consolidate import reseal forget expire grant revoke "
    "rebuild close".split()
)
REBUILD: Final = "rebuild"
_CHECKPOINT: Final = frozenset("relayer account seq head grant_serial time".split())
_RECEIPT: Final = frozenset(
    "relayer account seq prev time op actor namespace epoch items serial".split()
)
_STATEMENT: Final = frozenset("relayer issued unlock_keys".split())
_LISTED_KEY: Final = frozenset("kid key not_after".split())


class ListedKey(NamedTuple):
    """An unlock key as a statement lists it: its X25519 public key and its end."""

    kid: bytes
    key: bytes
    not_after_ms: int


@dataclass(frozen=True)
class Item:
    """One thing a receipt vouches for."""

    memory: uuid.UUID
    revision: int
    blob_id: str


@dataclass(frozen=True)
class Receipt:
    """The receipt of an accepted change: identifiers only, nothing that tells of a text."""

    account: AccountId
    seq: int
    previous: bytes
    time_ms: int
    op: str
    actor: PublicKey
    namespace: Namespace | None
    epoch: int | None
    items: tuple[Item, ...]
    serial: int
    relayer: PublicKey | None = None  # whose signature was verified


def sign_receipt(relayer: Identity, receipt: Receipt) -> bytes:
    """Return the signed receipt."""
    return sign_object(
        relayer,
        "receipt",
        {
            "relayer": relayer.public_key.hex(),
            "account": account_text(receipt.account),
            "seq": receipt.seq,
            "prev": receipt.previous.hex(),
            "time": receipt.time_ms,
            "op": receipt.op,
            "actor": receipt.actor.hex(),
            "namespace": receipt.namespace,
            "epoch": receipt.epoch,
            "items": [[str(i.memory), i.revision, i.blob_id] for i in receipt.items],
            "serial": receipt.serial,
        },
    )


def open_receipt(signed: bytes, *relayers: PublicKey) -> Receipt:
    """Return a receipt of this relayer, signed by any key that it has had.

    Raises:
        CryptoError: bad signature or members.
    """
    relayer = _signer(signed, relayers)
    m = open_object(signed, "receipt", relayer, _RECEIPT)
    if m["relayer"] != relayer.hex() or text_member(m["op"]) not in OPERATIONS:
        raise CryptoError("another relayer's receipt or an unknown operation")
    namespace, epoch = m["namespace"], m["epoch"]
    return Receipt(
        account=parse_account(text_member(m["account"])),
        seq=integer_member(m["seq"], low=1),
        previous=parse_public_key(text_member(m["prev"])),
        time_ms=integer_member(m["time"], low=0),
        op=m["op"],
        actor=parse_public_key(text_member(m["actor"])),
        namespace=None if namespace is None else settled_namespace(text_member(namespace)),
        epoch=None if epoch is None else integer_member(epoch, low=1, high=EPOCH_MAX),
        items=_parse_items(m["items"]),
        serial=integer_member(m["serial"], low=0),
        relayer=relayer,
    )


def _signer(signed: bytes, relayers: Sequence[PublicKey]) -> PublicKey:
    """Return the relayer's key to verify an object with: the one it names, else the last."""
    try:
        named = claimed(signed, "relayer")
    except CryptoError:
        named = ""
    return next((key for key in relayers if key.hex() == named), relayers[-1])


def _parse_items(value: Any) -> tuple[Item, ...]:
    if not isinstance(value, list):
        raise CryptoError("bad items")
    return tuple(_parse_item(item) for item in value)


def _parse_item(item: Any) -> Item:
    if not isinstance(item, list) or len(item) != 3:
        raise CryptoError("bad item")
    memory, revision, name = item
    return Item(uuid_member(memory), integer_member(revision, low=0), text_member(name))


def chain_hash(signed: bytes) -> bytes:
    """Return the hash that the next receipt names as `prev`."""
    return blake2b_256(signed)


class ReceiptChain:
    """An account's receipts, followed one by one; `seq` and `head` are those of the last."""

    def __init__(
        self, relayers: Sequence[PublicKey], *, seq: int = 0, head: bytes = FIRST_PREVIOUS
    ) -> None:
        self._relayers = tuple(relayers)
        self.seq, self.head = seq, head
        self._begins = True

    def follow(self, signed: bytes) -> Receipt:
        """Return the next receipt, which must follow the last without a gap.

        Only the first may be that of an account rebuilt.

        Raises:
            CryptoError: it is missing, altered, out of order or of another relayer, or signed by a
                key that had been replaced.
        """
        receipt = open_receipt(signed, *self._relayers)
        follows = (receipt.seq, receipt.previous) == (self.seq + 1, self.head)
        if receipt.op == REBUILD:
            # It begins a chain of its own, or follows the one that somebody remembers.
            follows = self._begins and (follows or self.seq == 0)
        if not follows:
            raise CryptoError("the chain of receipts is broken")
        assert receipt.relayer is not None
        self._relayers = self._relayers[self._relayers.index(receipt.relayer) :]
        self.seq, self.head = receipt.seq, chain_hash(signed)
        self._begins = False
        return receipt


@dataclass(frozen=True)
class Checkpoint:
    """The state of an account's chain of receipts at a time."""

    account: AccountId
    seq: int
    head: bytes
    grant_serial: int
    time_ms: int


def sign_checkpoint(relayer: Identity, checkpoint: Checkpoint) -> bytes:
    """Return the signed `checkpoint`, for its account to keep and to compare."""
    return sign_object(
        relayer,
        "checkpoint",
        {
            "relayer": relayer.public_key.hex(),
            "account": account_text(checkpoint.account),
            "seq": checkpoint.seq,
            "head": checkpoint.head.hex(),
            "grant_serial": checkpoint.grant_serial,
            "time": checkpoint.time_ms,
        },
    )


def open_checkpoint(signed: bytes, *relayers: PublicKey) -> Checkpoint:
    """Return a checkpoint of this relayer, signed by any key that it has had.

    Raises:
        CryptoError: bad signature or members.
    """
    relayer = _signer(signed, relayers)
    m = open_object(signed, "checkpoint", relayer, _CHECKPOINT)
    if m["relayer"] != relayer.hex():
        raise CryptoError("another relayer's checkpoint")
    return Checkpoint(
        account=parse_account(text_member(m["account"])),
        seq=integer_member(m["seq"], low=1),
        head=parse_public_key(text_member(m["head"])),
        grant_serial=integer_member(m["grant_serial"], low=0),
        time_ms=integer_member(m["time"], low=0),
    )


def sign_statement(
    relayer: Identity, *, issued_ms: int, unlock_keys: Sequence[tuple[bytes, bytes, int]]
) -> bytes:
    """Sign the `relayer` statement; unlock keys as (kid, X25519 public key, not after in ms)."""
    keys: list[dict[str, Any]] = [
        {"kid": kid.hex(), "key": key.hex(), "not_after": not_after}
        for kid, key, not_after in unlock_keys
    ]
    members = {"relayer": relayer.public_key.hex(), "issued": issued_ms, "unlock_keys": keys}
    return sign_object(relayer, "relayer", members)


def open_statement(signed: bytes, relayer: PublicKey) -> list[ListedKey]:
    """Return the unlock keys that a `relayer` statement lists, in its order.

    Raises:
        CryptoError: bad signature or members, or another relayer's.
    """
    m = open_object(signed, "relayer", relayer, _STATEMENT)
    if m["relayer"] != relayer.hex() or not isinstance(m["unlock_keys"], list):
        raise CryptoError("another relayer's statement, or a malformed one")
    return [_parse_listed(entry) for entry in m["unlock_keys"]]


def _parse_listed(entry: Any) -> ListedKey:
    if not isinstance(entry, dict) or entry.keys() != _LISTED_KEY:
        raise CryptoError("bad unlock key")
    key = parse_public_key(text_member(entry["key"]))
    kid = blake2b_256(key)[:8]
    if entry["kid"] != kid.hex():
        raise CryptoError("bad unlock key")
    return ListedKey(kid, key, integer_member(entry["not_after"], low=0))
