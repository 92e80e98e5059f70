"""Verifying a whole relayer: every blob against its name, every row against its blob, every chain.

Not here: mending. Needs no client's key: what a sealed account's blobs hold is not looked at, that
they are the ones their rows speak of is.
"""

import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from relayer.blobs import BlobStore
from relayer.database import accounts as account_rows
from relayer.database import blobs as staged_blobs
from relayer.database import check as rows
from relayer.database.pool import Row
from relayer.errors import Corrupted
from relayer.sealed import envelope
from relayer.sealed.grants import Chain, parse_any
from relayer.sealed.keys import AccountId, account_text
from relayer.sealed.primitives import CryptoError, to_base64url
from relayer.sealed.receipts import FIRST_PREVIOUS, open_receipt, verify_chain
from relayer.storage import Storage

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
    """Look at every account, beside a running server too."""
    report = Report()
    for row in await account_rows.list_accounts(storage.database):
        account = AccountId(row["account_id"])
        report.checked["accounts"] += 1
        serial = await _check_receipts(storage, account, report)
        await _check_grants(storage, account, report, serial)
        await _check_journal(storage, account, report)
        await _check_memories(storage, account, report)
        await _check_episodes(storage, account, report)
        await _check_rows(storage, account, report)
    return report


async def _check_receipts(storage: Storage, account: AccountId, report: Report) -> int:
    """The serial that the newest receipt has seen; receipts accepted meanwhile are checked too."""
    head_then = await account_rows.find_account(storage.database, account)
    assert head_then is not None
    relayer = storage.identity.public_key
    seq, head, serial, heads = 0, FIRST_PREVIOUS, 0, {}
    try:
        while page := await account_rows.receipts_after(storage.database, account, seq, PAGE):
            for signed in page:
                seq, head = verify_chain([signed], relayer, seq=seq, head=head)
                heads[seq] = head
            serial = open_receipt(page[-1], relayer).serial
            report.checked["receipts"] += len(page)
    except CryptoError as error:
        report.problem(account, f"receipts: {error}", str(seq + 1))
        return serial
    head_now = await account_rows.find_account(storage.database, account)
    assert head_now is not None
    known = heads.get(head_then["receipt_seq"]) == head_then["receipt_head"]
    if not known or head_now["receipt_seq"] < seq:
        report.problem(account, "the newest receipt is not the account's head", str(seq))
    return serial


async def _check_grants(storage: Storage, account: AccountId, report: Report, serial: int) -> None:
    """Verify the chain from its beginning; it must reach what receipts and row name."""
    row = await account_rows.find_account(storage.database, account)
    chain, stored = Chain(account), await rows.grants(storage.database, account)
    for grant in stored:
        report.checked["grants"] += 1
        try:
            item = parse_any(grant["object"])
            chain.add(item)
        except CryptoError as error:
            report.problem(account, f"a grant does not verify: {error}", str(grant["serial"]))
            return
        if (item.serial, item.recipient) != (grant["serial"], grant["recipient"]):
            report.problem(
                account, "a grant's columns differ from its object", str(grant["serial"])
            )
    if row is None or chain.serial < max(row["grant_serial"], serial):
        report.problem(account, "grants are missing", str(chain.serial + 1))
    row = await account_rows.find_account(storage.database, account)
    if row is None or row["grant_serial"] < chain.serial:
        report.problem(account, "the account does not know its newest grant", str(chain.serial))
    await _check_owners(storage, chain, report)


async def _check_journal(storage: Storage, account: AccountId, report: Report) -> None:
    """Grants, revocations and erasures are in the blob store too, or wait to be published."""
    journal = [r["object"] for r in await rows.grants(storage.database, account)]
    seq = 0
    while page := await account_rows.receipts_after(storage.database, account, seq, PAGE):
        seq += len(page)
        journal += [signed for signed in page if _is_erasure(storage, signed)]
    for at in range(0, len(journal), PAGE):
        names = {envelope.blob_id(signed): signed for signed in journal[at : at + PAGE]}
        stored = await storage.blobs.get_many(account, list(names))
        staged = await staged_blobs.find(storage.database, account, list(names))
        for name, signed in names.items():
            report.checked["journal objects"] += 1
            if signed not in (stored.get(name), staged.get(name)):
                report.problem(account, "a journal object is missing or altered", name)


def _is_erasure(storage: Storage, signed: bytes) -> bool:
    try:
        return open_receipt(signed, storage.identity.public_key).op == "forget"
    except CryptoError:
        return False  # `_check_receipts` has said so


async def _check_owners(storage: Storage, chain: Chain, report: Report) -> None:
    keys = [key for key in chain.grants if key != storage.identity.public_key]
    owners = await rows.owners(storage.database, keys)
    for key in keys:
        if owners.get(key) != chain.account:
            report.problem(chain.account, "a key belongs to another account or to none", key.hex())


async def _check_memories(storage: Storage, account: AccountId, report: Report) -> None:
    after = 0
    while page := await rows.memories_after(storage.database, account, after, PAGE):
        report.checked["memories"] += len(page)
        await _check_page(storage, account, page, report)
        after = page[-1]["seq"]


async def _check_episodes(storage: Storage, account: AccountId, report: Report) -> None:
    after = uuid.UUID(int=0)
    while page := await rows.episodes_after(storage.database, account, after, PAGE):
        report.checked["episodes"] += len(page)
        await _check_page(storage, account, page, report)
        after = page[-1]["memory_id"]


async def _check_page(
    storage: Storage, account: AccountId, page: list[Row], report: Report
) -> None:
    """Note the faults of those rows of a page that are still there after looking at their blobs."""
    blobs = await _blobs(storage.blobs, account, page)
    faults = {row["memory_id"]: _fault(account, row, blobs) for row in page}
    doubtful = [memory_id for memory_id, fault in faults.items() if fault is not None]
    present = await rows.present(storage.database, account, doubtful) if doubtful else set()
    for memory_id in doubtful:
        if memory_id in present:
            report.problem(account, faults[memory_id] or "", str(memory_id))


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


async def _check_rows(storage: Storage, account: AccountId, report: Report) -> None:
    for name in await rows.counts_off(storage.database, account):
        report.problem(account, "a count is off", name)
    for row in await rows.stray_rows(storage.database, account):
        report.problem(account, row["what"], str(row["memory_id"]))
