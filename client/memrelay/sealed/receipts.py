"""Receipts: the relayer's signed record of every change to an account, each tied to the last.

It does not own how far the chain was followed before (`session.py`), or what the receipts say
together (`verification.py`).

- A chain is signed by the keys of one relayer in their order: none signs after its successor did.

Source: SPEC.md §4.3, §15.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from memrelay.errors import Invalid, UntrustedRelayer
from memrelay.sealed.keys import account_bytes, hash_256, hex_bytes, normalise_namespace
from memrelay.sealed.objects import (
    integer,
    list_of,
    read_claimed_member,
    read_object,
    text_of,
    uuid_text,
)

NO_HEAD = bytes(32)
HEADS_MAX = 1024
CLOCKS_APART_MS_MAX = 600_000  # this machine's and a relayer's 300 s, and two relayers' as much


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
    items: tuple[tuple[str, int, str], ...]
    serial: int
    relayer: bytes  # the relayer's key of that time
    digest: bytes  # hash of the signed bytes: what the next receipt names as `prev`


_OPERATIONS = frozenset(
    {
        *("remember", "analyze", "restore", "edit", "state", "consolidate", "import", "reseal"),
        *("forget", "expire", "grant", "revoke", "rebuild", "close"),
    }
)

_SEALING = frozenset({"remember", "analyze", "edit"})  # under the newest epoch, by a request
_GONE = 0  # the revision of a turn that waited, whatever it was sealed under, and has its facts now


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
            relayer=relayer,
            digest=hash_256(data),
        )
    except Invalid as error:
        raise UntrustedRelayer(error.code, f"A receipt: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestState:
    """The knowledge of a client when it sent a request: the time, the newest epoch, and the
    namespaces that it was for, None where these are not known."""

    at_ms: int
    epoch: int
    namespaces: frozenset[str] | None = None

    def check(self, receipt: Receipt) -> None:
        """Check that a receipt of the answer is of this request, not of another or earlier one.

        Raises:
            UntrustedRelayer: it is for another namespace, an epoch that was over, or older.
        """
        if receipt.time_ms < self.at_ms - CLOCKS_APART_MS_MAX:
            raise UntrustedRelayer("receipt", "A receipt is older than what it was asked for.")
        seals = receipt.op in _SEALING and any(item[1] != _GONE for item in receipt.items)
        if seals and (receipt.epoch or 0) < self.epoch:
            raise UntrustedRelayer("receipt", "A receipt is for an epoch that is over.")
        names = self.namespaces
        if names is not None and receipt.namespace not in set(map(normalise_namespace, names)):
            raise UntrustedRelayer("receipt", "A receipt is for another namespace than asked.")


def _receipt_item(item: object) -> tuple[str, int, str]:
    if not isinstance(item, list) or len(item) != 3:
        raise Invalid("items", "an item is an id, a revision and a blob id.")
    return uuid_text(item[0]), integer(item[1]), text_of(item[2])


class History:
    """An account's receipts, followed one by one; `seq` and `head` are those of the last.

    `relayers` are all keys that the relayer has had, oldest first.
    """

    def __init__(
        self, relayers: Sequence[bytes], account: bytes, *, seq: int = 0, head: bytes = NO_HEAD
    ) -> None:
        self._relayers = list(relayers)
        self._account = account
        self.seq, self.head = seq, head
        self._begins = True

    @property
    def signer(self) -> bytes:
        """The key that signed the last receipt, or the oldest before there is one."""
        return self._relayers[0]

    def follow(self, data: bytes) -> Receipt:
        """Return the next receipt; only the first may be that of an account rebuilt.

        Raises:
            UntrustedRelayer: `chain`, when it does not follow the last; otherwise the failed check.
        """
        signer = signer_of(data, self._relayers)
        receipt = read_receipt(data, relayer=signer, account=self._account)
        rebuilt = receipt.op == "rebuild"
        follows = (receipt.seq, receipt.prev) == (self.seq + 1, self.head)
        if rebuilt:
            # It begins a chain of its own, or follows the one that somebody remembers.
            follows = self._begins and (follows or self.seq == 0)
        if not follows:
            raise UntrustedRelayer("chain", f"The receipts break after number {self.seq}.")
        del self._relayers[: self._relayers.index(signer)]
        self.seq, self.head = receipt.seq, receipt.digest
        self._begins = False
        return receipt


def follow_receipts(
    objects: Iterable[bytes],
    *,
    relayers: Sequence[bytes],
    account: bytes,
    seq: int,
    head: bytes,
) -> list[Receipt]:
    """Return the receipts that follow the one numbered `seq` with the hash `head`, unbroken.

    Raises:
        UntrustedRelayer: `chain`, at the first gap or change; otherwise the failed check.
    """
    history = History(relayers, account, seq=seq, head=head)
    return [history.follow(data) for data in objects]


class Heads:
    """The chain as receipts of answers, in any order, describe it; as far as the newest go.

    A receipt tells the chain's hash at two numbers, its own and the one before it.
    """

    def __init__(self, seq: int = 0, head: bytes = NO_HEAD) -> None:
        self._heads: dict[int, bytes] = {0: NO_HEAD, seq: head}
        self._taken: dict[bytes, None] = {}

    def take(self, receipt: Receipt) -> bool:
        """Take in what came with an answer; return whether it is of the history known so far.

        After another one, that of before is forgotten: a relayer may have been set back.

        Raises:
            UntrustedRelayer: `receipt`, when this one came with another answer before.
        """
        if receipt.digest in self._taken:
            raise UntrustedRelayer("receipt", "A receipt is one of an earlier answer.")
        self._taken[receipt.digest] = None
        said = {receipt.seq - 1: receipt.prev, receipt.seq: receipt.digest}
        agrees = all(self._heads.get(seq, head) == head for seq, head in said.items())
        if not agrees:
            self._heads.clear()
        self._heads.update(said)
        _forget_oldest(self._heads)
        _forget_oldest(self._taken)
        return agrees


def _forget_oldest(known: dict[Any, Any]) -> None:
    while len(known) > HEADS_MAX:
        del known[next(iter(known))]


def signer_of(data: bytes, relayers: Sequence[bytes]) -> bytes:
    """Return which of a relayer's keys an unverified object claims to be signed by, else the last.

    Whatever it claims, it counts only once it is verified under the key returned.
    """
    try:
        claimed = read_claimed_member(data, "relayer")
    except Invalid:
        claimed = None
    return next((key for key in relayers if key.hex() == claimed), relayers[-1])


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of an account's history at a time, signed by its relayer."""

    account: bytes
    seq: int
    head: bytes
    grant_serial: int
    time_ms: int
    relayer: bytes
    signed: bytes = field(repr=False)  # what can be shown to others


def read_checkpoint(data: bytes, *, relayers: Sequence[bytes], account: bytes) -> Checkpoint:
    """Return a checkpoint of this account, signed by any key that the relayer has had.

    Raises:
        UntrustedRelayer: the failed check.
    """
    signer = signer_of(data, relayers)
    try:
        value = read_object("checkpoint", data, signer=signer)
        if value["relayer"] != signer.hex() or account_bytes(value["account"]) != account:
            raise Invalid("account", "it belongs to another relayer or account.")
        return Checkpoint(
            account=account,
            seq=integer(value["seq"], least=1),
            head=hex_bytes(value["head"], 32, "hash"),
            grant_serial=integer(value["grant_serial"]),
            time_ms=integer(value["time"]),
            relayer=signer,
            signed=data,
        )
    except Invalid as error:
        raise UntrustedRelayer(error.code, f"A checkpoint: {error}") from error
