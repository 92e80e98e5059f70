"""Verifying a whole relayer: every blob against its name, every row against its blob, every chain.

Not here: mending. Needs no client's key: what a sealed account's blobs hold is not looked at, that
they are the ones their rows speak of is.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from relayer.app import Storage
from relayer.blobs import BlobStore
from relayer.database import accounts as account_rows
from relayer.database import check as rows
from relayer.database.pool import Row
from relayer.errors import Corrupted, RelayerError
from relayer.sealed import envelope
from relayer.sealed.grants import parse_any
from relayer.sealed.keys import AccountId, account_text
from relayer.sealed.primitives import CryptoError, to_base64url
from relayer.sealed.receipts import verify_chain

PAGE = 500


@dataclass
class Report:
    """What was looked at, and what does not hold."""

    checked: Counter[str] = field(default_factory=Counter)
    problems: list[dict[str, str]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether everything holds."""
        return not self.problems

    def problem(self, account: AccountId, what: str, where: str) -> None:
        """Note something that does not hold."""
        self.problems.append({"account_id": account_text(account), "problem": what, "id": where})

    def as_json(self) -> dict[str, Any]:
        """The report for scripts."""
        return {"ok": self.ok, "checked": dict(self.checked), "problems": self.problems}

    def as_text(self) -> str:
        """The report for people."""
        looked = ", ".join(f"{n} {what}" for what, n in sorted(self.checked.items()))
        lines = [f"{p['account_id']}: {p['problem']}: {p['id']}" for p in self.problems]
        verdict = "everything holds" if self.ok else f"{len(lines)} problems"
        return "\n".join([f"checked {looked or 'nothing'}: {verdict}", *lines])


async def check(storage: Storage) -> Report:
    """Look at every account."""
    report = Report()
    for row in await account_rows.list_accounts(storage.database):
        account = AccountId(row["account_id"])
        report.checked["accounts"] += 1
        await _check_grants(storage, account, report)
        await _check_receipts(storage, account, report)
        await _check_memories(storage, account, report)
        await _check_counts(storage, account, report)
    return report


async def _check_grants(storage: Storage, account: AccountId, report: Report) -> None:
    try:
        await storage.accounts.chain(account)
    except RelayerError as error:
        report.problem(account, error.message, "grants")
        return
    for row in await account_rows.grants_after(storage.database, account, 0):
        report.checked["grants"] += 1
        item = parse_any(row["object"])
        if (item.serial, item.recipient) != (row["serial"], row["recipient"]):
            report.problem(account, "a grant's columns differ from its object", str(row["serial"]))


async def _check_receipts(storage: Storage, account: AccountId, report: Report) -> None:
    seq, head = 0, bytes(32)
    relayer = storage.identity.public_key
    try:
        while page := await account_rows.receipts_after(storage.database, account, seq, PAGE):
            seq, head = verify_chain(page, relayer, seq=seq, head=head)
            report.checked["receipts"] += len(page)
    except CryptoError as error:
        report.problem(account, f"receipts: {error}", str(seq + 1))
        return
    row = await account_rows.find_account(storage.database, account)
    if row is not None and (row["receipt_seq"], row["receipt_head"]) != (seq, head):
        report.problem(account, "the newest receipt is not the account's head", str(seq))


async def _check_memories(storage: Storage, account: AccountId, report: Report) -> None:
    after = 0
    while page := await rows.memories_after(storage.database, account, after, PAGE):
        blobs = await _blobs(storage.blobs, account, page)
        for row in page:
            report.checked["memories"] += 1
            if (what := _fault(account, row, blobs)) is not None:
                report.problem(account, what, str(row["memory_id"]))
        after = page[-1]["seq"]


async def _blobs(
    store: BlobStore, account: AccountId, page: list[Row]
) -> dict[str, bytes | Corrupted]:
    return await store.get_many(account, [to_base64url(r["blob_id"]) for r in page])


def _fault(account: AccountId, row: Row, blobs: dict[str, bytes | Corrupted]) -> str | None:
    """What is wrong with a memory, from what anybody can see of it."""
    blob = blobs.get(to_base64url(row["blob_id"]))
    if blob is None:
        return "its blob is missing"
    if isinstance(blob, Corrupted):
        return "its blob does not match its name"
    if row["format"] != "sealed":
        return None
    expected = envelope.Address(row["type"], account, row["memory_id"], row["revision"])
    try:
        header = envelope.read_header(blob)
    except CryptoError:
        return "its blob is no envelope"
    if header.address != expected or header.epoch != row["epoch"]:
        return "its blob belongs to another row"
    if header.key_id != row["key_id"]:
        return "its blob is sealed under another key"
    return None


async def _check_counts(storage: Storage, account: AccountId, report: Report) -> None:
    for row in await rows.namespace_counts(storage.database, account):
        if row["memory_count"] != row["counted"]:
            report.problem(account, "a namespace's count is off", str(row["namespace_id"]))
    for row in await rows.stray_rows(storage.database, account):
        report.problem(account, f"{row['what']} of a memory that is gone", str(row["memory_id"]))
