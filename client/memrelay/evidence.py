"""Follows an archive's receipts, and checks that it has what they promise.

It does not own the records (`archive_writer.py`), what receipts promise together
(`verification.py`) or their signatures (`sealed/`).

- A receipt is followed in its turn and let go.
- What is promised takes some 400 bytes of memory for each stored revision, as for `verify`.

Source: SPEC.md §15, §17.1.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from memrelay.errors import Invalid, UntrustedRelayer
from memrelay.sealed.objects import from_base64, integer, list_of
from memrelay.sealed.receipts import History, Receipt
from memrelay.sealed.statement import read_succession
from memrelay.verification import Promises

_NAME_BYTES = 16


class Evidence:
    """The receipts of an account that a relayer gave away, from the first to the newest."""

    def __init__(self, *, account: bytes, relayer: bytes) -> None:
        self._account = account
        self._relayer = relayer
        self._history: History | None = None
        self._least = 0

    def take(self, record: Mapping[str, Any]) -> Receipt | None:
        """Note a record in its turn; return the receipt that it is, if it is one.

        Raises:
            UntrustedRelayer: a receipt does not follow the one before it, or another relayer signed
                it.
            Invalid: the account is another relayer's, or does not come first.
        """
        if record["record"] == "account":
            self._begin(record)
        elif record["record"] == "receipt":
            return self._follow(record)
        return None

    def check_end(self) -> None:
        """Check that the receipts reach as far as the account's history did.

        Raises:
            Invalid: the newest are missing.
        """
        if self._history is None or self._history.seq < self._least:
            raise Invalid("chain", "The archive's newest receipts are missing.")

    def _begin(self, account: Mapping[str, Any]) -> None:
        if account["relayer"] != self._relayer.hex():
            raise Invalid("relayer", "The archive names two relayers.")
        named = [from_base64(text, "object") for text in list_of(account["succession"])]
        relayers = read_succession(named, last=self._relayer)
        self._history = History(relayers, self._account)
        self._least = integer(account["receipt_seq"])

    def _follow(self, record: Mapping[str, Any]) -> Receipt:
        if self._history is None:
            raise Invalid("record", "The archive does not begin with its account.")
        receipt = self._history.follow(from_base64(record["object"], "receipt"))
        if receipt.seq != record["seq"]:
            raise UntrustedRelayer("chain", f"Receipt {receipt.seq} stands in another one's place.")
        return receipt


class PromisedObjects:
    """The objects that an archive's receipts promise, beside those that it has."""

    def __init__(self) -> None:
        self._promises = Promises()
        self._held: set[bytes] = set()

    def hold(self, row: Mapping[str, Any]) -> None:
        """Note a memory, an earlier revision or a turn of the archive."""
        item = row.get("revision_of") or row["id"]
        self._held.add(_name(item, row.get("revision", 1), row["blob_id"]))

    def add(self, receipt: Receipt) -> None:
        """Note the next receipt; what it contradicts in those before, `verify` tells."""
        for _ in self._promises.add(receipt):
            pass

    def list_missing(self, erased: Callable[[str, str], bool]) -> list[str]:
        """Return the ids of what is promised and not there; `erased` says by id and blob what
        is gone since."""
        lacking = {
            str(UUID(bytes=item)): named.blob_id
            for item, named in self._promises
            if _name(str(UUID(bytes=item)), named.revision, named.blob_id) not in self._held
        }
        return sorted(item for item, blob in lacking.items() if not erased(item, blob))


def _name(item: str, revision: int, blob: str) -> bytes:
    text = f"{item} {revision} {blob}".encode()
    return hashlib.blake2b(text, digest_size=_NAME_BYTES).digest()
