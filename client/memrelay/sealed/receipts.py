"""Receipts: the relayer's signed record of every change to an account, each tied to the last.

It does not own how far the chain was followed before (`session.py`).

Source: SPEC.md §4.3.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from memrelay.errors import Invalid, UntrustedRelayer
from memrelay.sealed.keys import account_bytes, hash_256, hex_bytes
from memrelay.sealed.objects import integer, list_of, read_object, text_of, uuid_text

NO_HEAD = bytes(32)


@dataclass(frozen=True, slots=True)
class Receipt:
    """One link of an account's history; `items` are (memory or grant id, revision, blob id)."""

    account: bytes
    seq: int
    prev: bytes
    time_ms: int
    op: str
    actor: bytes
    namespace: str | None
    epoch: int | None
    items: tuple[tuple[str, int, str | None], ...]
    serial: int
    digest: bytes  # hash of the signed bytes: what the next receipt names as `prev`


_OPERATIONS = frozenset(
    {
        *("remember", "analyze", "restore", "edit", "state", "consolidate", "import", "reseal"),
        *("forget", "expire", "grant", "revoke", "rebuild", "close"),
    }
)


def read_receipt(data: bytes, *, relayer: bytes, account: bytes) -> Receipt:
    """Return a receipt of this account, verified under the relayer's key.

    Raises:
        UntrustedRelayer: the failed check.
    """
    try:
        value = read_object("receipt", data, signer=relayer)
        if value["relayer"] != relayer.hex() or account_bytes(value["account"]) != account:
            raise Invalid("account", "it belongs to another relayer or account.")
        if value["op"] not in _OPERATIONS:
            raise Invalid("op", "it has an unknown operation.")
        return Receipt(
            account=account,
            seq=integer(value["seq"], least=1),
            prev=hex_bytes(value["prev"], 32, "hash"),
            time_ms=integer(value["time"]),
            op=value["op"],
            actor=hex_bytes(value["actor"], 32, "public key"),
            namespace=None if value["namespace"] is None else text_of(value["namespace"]),
            epoch=None if value["epoch"] is None else integer(value["epoch"]),
            items=tuple(_receipt_item(item) for item in list_of(value["items"])),
            serial=integer(value["serial"]),
            digest=hash_256(data),
        )
    except Invalid as error:
        raise UntrustedRelayer(error.code, f"A receipt: {error}") from error


def _receipt_item(item: object) -> tuple[str, int, str | None]:
    if not isinstance(item, list) or len(item) != 3:
        raise Invalid("items", "an item is an id, a revision and a blob id.")
    blob_id = None if item[2] is None else text_of(item[2])
    return uuid_text(item[0]), integer(item[1]), blob_id


def follow_receipts(
    objects: Iterable[bytes], *, relayer: bytes, account: bytes, seq: int, head: bytes
) -> list[Receipt]:
    """Return the receipts that follow the one numbered `seq` with the hash `head`, unbroken.

    Raises:
        UntrustedRelayer: `chain`, at the first gap or change; otherwise the failed check.
    """
    receipts = []
    for data in objects:
        receipt = read_receipt(data, relayer=relayer, account=account)
        if receipt.seq != seq + 1 or receipt.prev != head:
            raise UntrustedRelayer("chain", f"The receipts break after number {seq}.")
        seq, head = receipt.seq, receipt.digest
        receipts.append(receipt)
    return receipts
