"""Verifying a whole relayer: every blob against its name, every row against its blob, every chain.

Not here: mending. Needs no client's key: what a sealed account's blobs hold is not looked at, that
they are the ones their rows speak of is.
"""

import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from relayer.blobs.store import BlobStore
from relayer.database import accounts as account_rows
from relayer.database import blobs as staged_blobs
from relayer.database import check as rows
from relayer.database import closing as closing_rows
from relayer.database import collection
from relayer.database import rebuild as rebuild_rows
from relayer.database.pool import Row
from relayer.errors import Corrupted
from relayer.memories.eraser import ERASURES
from relayer.recovery.examiner import Examiner
from relayer.sealed import envelope
from relayer.sealed.foreign import is_foreign
from relayer.sealed.grants import Chain, parse_any
from relayer.sealed.keys import AccountId, account_text
from relayer.sealed.primitives import CryptoError, to_base64url
from relayer.sealed.receipts import Receipt, ReceiptChain, open_receipt
from relayer.storage import Storage
from relayer.tenants.closing import CLOSE

PAGE: Final = 500
OVERDUE: Final = timedelta(hours=1)  # many rounds of housekeeping
NONE_THERE: Final = "not one blob is in the store"
LOOK_AT_STORE: Final = (
    "look at RELAYER_BLOB_STORE and what it names, which is to be given as `relayer serve` is given"
    " it"
)
Find = Callable[[AccountId, Sequence[str]], Awaitable[dict[str, bytes | Corrupted]]]


@dataclass
class Report:
    """The numbers of things that were checked, and the problems found."""

    checked: Counter[str] = field(default_factory=Counter)
    problems: list[dict[str, str]] = field(default_factory=list)
    blobs_found: bool = False  # at least one

    @property
    def ok(self) -> bool:
        """Return true if everything holds."""
        return not self.problems

    @property
    def hint(self) -> str:
        """Return the one cause that all problems may have; or nothing."""
        looked = sum(self.checked[what] for what in ("journal objects", "memories", "episodes"))
        return f"{NONE_THERE}: {LOOK_AT_STORE}" if looked and not self.blobs_found else ""

    def problem(self, account: AccountId, what: str, where: str) -> None:
        """Note something that does not hold."""
        self.problems.append({"account_id": account_text(account), "problem": what, "id": where})

    def as_json(self) -> dict[str, Any]:
        """Return the report for scripts."""
        found = {"ok": self.ok, "checked": dict(self.checked), "problems": self.problems}
        return found | ({"hint": self.hint} if self.hint else {})

    def as_text(self) -> str:
        """Return the report for people."""
        looked = ", ".join(_count(n, what) for what, n in sorted(self.checked.items()))
        lines = [f"{p['account_id']}: {p['problem']}: {p['id']}" for p in self.problems]
        verdict = "everything holds" if self.ok else _count(len(lines), "problems")
        first = f"checked {looked}: {verdict}" if looked else "there is no account here"
        return "\n".join([first, *lines, *filter(None, [self.hint])])


def _count(number: int, what: str) -> str:
    """Return so many of what has this plural."""
    if number == 1:
        what = f"{what[:-3]}y" if what.endswith("ies") else what.removesuffix("s")
    return f"{number} {what}"


async def check(storage: Storage) -> Report:
    """Look at every account, beside a running server too."""
    report = Report()
    for row in await account_rows.list_accounts(storage.database):
        account = AccountId(row["whole_id"])
        report.checked["accounts"] += 1
        serial = await _check_receipts(storage, account, report)
        await _check_grants(storage, account, report, serial)
        await _check_memories(storage, account, report)
        await _check_episodes(storage, account, report)
        await _check_namespaces(storage, account, report)
        await _check_stores(storage, account, report)
    for account in await closing_rows.find_closed(storage.database):
        await _check_closed(storage, account, report)
    for account in await _find_unknown_accounts(storage):
        report.problem(account, "the database does not know this account", account_text(account))
    return report


async def _find_unknown_accounts(storage: Storage) -> list[AccountId]:
    """Return accounts of the store that the database, once set back, does not know."""
    stored = await storage.blobs.accounts()  # first: a new account is published after its rows
    known = await rebuild_rows.find_accounts(storage.database)
    return [account for account in stored if account not in known]


async def _check_receipts(storage: Storage, account: AccountId, report: Report) -> int:
    """Return the serial that the newest receipt has seen; check receipts accepted meanwhile."""
    head_then = await account_rows.find_account(storage.database, account)
    assert head_then is not None
    chain, serial, heads = ReceiptChain(storage.relayers), 0, {}
    try:
        while page := await account_rows.receipts_after(storage.database, account, chain.seq, PAGE):
            followed = []
            for signed in page:
                followed.append(chain.follow(signed))
                heads[chain.seq] = chain.head
            serial = followed[-1].serial
            report.checked["receipts"] += len(page)
            await _check_erasures(storage, account, page, followed, report)
    except CryptoError as error:
        report.problem(account, f"receipts: {error}", str(chain.seq + 1))
        return serial
    seq = chain.seq
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
            if grant["succession"] is not None:
                chain.learn(grant["succession"])
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
    journal = [signed for g in stored for signed in (g["object"], g["succession"]) if signed]
    journal += await rows.namespace_objects(storage.database, account)
    await _check_journal(storage, account, journal, report)


async def _check_erasures(
    storage: Storage,
    account: AccountId,
    page: Sequence[bytes],
    receipts: Sequence[Receipt],
    report: Report,
) -> None:
    """Check that erasures are in the blob store too, and that what they name is known as erased."""
    erasures = [n for n, receipt in enumerate(receipts) if receipt.op in ERASURES]
    await _check_journal(storage, account, [page[n] for n in erasures], report)
    ids = {i.memory for n in erasures for i in receipts[n].items}
    known = await collection.find_tombstoned(storage.database, account=account, ids=list(ids))
    for memory_id in sorted(ids - known):
        report.problem(account, "it was erased and has no tombstone", str(memory_id))


async def _check_journal(
    storage: Storage, account: AccountId, journal: Sequence[bytes], report: Report
) -> None:
    """Check that these signed objects are in the blob store too, or wait to be published."""
    for at in range(0, len(journal), PAGE):
        names = {envelope.blob_id(signed): signed for signed in journal[at : at + PAGE]}
        report.checked["journal objects"] += len(names)
        missing = await _find_missing(storage, account, names)
        report.blobs_found |= len(missing) < len(names)
        for name in missing:
            report.problem(account, "a journal object is missing or altered", name)


async def _find_missing(
    storage: Storage, account: AccountId, names: dict[str, bytes]
) -> dict[str, bytes]:
    """Return those neither in the store nor staged, even if they are published meanwhile."""
    for find in (storage.blobs.get_many, _find_staged(storage), storage.blobs.get_many):
        found = await find(account, list(names))
        names = {name: signed for name, signed in names.items() if found.get(name) != signed}
        if not names:
            break
    return names


def _find_staged(storage: Storage) -> Find:
    async def find(account: AccountId, names: Sequence[str]) -> dict[str, bytes | Corrupted]:
        return {**await staged_blobs.find(storage.database, account, names)}

    return find


async def _check_owners(storage: Storage, chain: Chain, report: Report) -> None:
    # A relayer belongs to no account, and a custodian is one.
    keys = [key for key, held in chain.grants.items() if any(g.role != "custodian" for g in held)]
    owners = await rows.owners(storage.database, keys)
    for key in keys:
        # One that belongs to none does with its first request that names the account.
        if owners.get(key, chain.account) != chain.account:
            report.problem(chain.account, "a key belongs to another account", key.hex())


async def _check_memories(storage: Storage, account: AccountId, report: Report) -> None:
    after = 0
    while page := await rows.memories_after(storage.database, account, after, PAGE):
        report.checked["memories"] += len(page)
        await _check_page(storage, account, page, report)
        last = page[-1]["seq"]
        for row in await rows.contradictions(storage.database, account, after, last):
            report.problem(account, row["what"], str(row["memory_id"]))
        after = last


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
    report.blobs_found |= bool(blobs)
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
    """Return the fault of a memory, from what anybody can see of it; None for none."""
    blob = blobs.get(to_base64url(row["blob_id"]))
    if blob is None:
        return "its blob is missing"
    if isinstance(blob, Corrupted):
        return "its blob does not match its name"
    if row["format"] != "sealed":
        return None if is_foreign(account, blob) else "its blob is no foreign one"
    expected = envelope.Address(
        row["type"], account, row["revision_of"] or row["memory_id"], row["revision"]
    )
    try:
        header = envelope.read_header(blob)
    except CryptoError:
        return "its blob is no envelope"
    if header.address != expected or header.epoch != row["epoch"]:
        return "its blob belongs to another row"
    if header.key_id != row["key_id"]:
        return "its blob is sealed under another key"
    return None


async def _check_namespaces(storage: Storage, account: AccountId, report: Report) -> None:
    """Check the counts of namespaces and the account, and the words of memories that are gone."""
    for number, name in (await rows.namespace_ids(storage.database, account)).items():
        if await rows.counts_off(storage.database, account, number):
            report.problem(account, "a count is off", name)
        if await rows.postings_off(storage.database, account, number):
            for memory_id in await rows.stray_postings(storage.database, account, number):
                report.problem(account, "a posting of a memory that is gone", str(memory_id))
    if await rows.totals_off(storage.database, account):
        report.problem(account, "a count is off", "account")


async def _check_stores(storage: Storage, account: AccountId, report: Report) -> None:
    """Check for objects that no row refers to, and for deletions that should have been done."""
    examiner = Examiner(database=storage.database, blobs=storage.blobs, relayers=storage.relayers)
    async for page in examiner.pages(account):
        found = await examiner.examine(account, page)
        named = {problem["id"] for problem in report.problems}
        altered = [name for name in found.altered if name not in named]
        unread = [name for name in found.unread if name not in named]
        for what, names in (
            ("nothing refers to this blob", found.stray),
            ("this blob was erased or replaced and is still there", found.useless),
            ("the database does not know this journal object", found.ahead),
            ("an object that nothing refers to does not match its name", altered),
            ("an object that nothing refers to cannot be read", unread),
        ):
            for name in names:
                report.problem(account, what, name)
        for receipt in found.unknown:
            report.problem(account, "the database does not know this erasure", str(receipt.seq))
    await _check_overdue(storage, account, report)


async def _check_overdue(storage: Storage, account: AccountId, report: Report) -> None:
    before = await rows.database_clock(storage.database) - OVERDUE
    for blob in await rows.overdue(storage.database, account, before):
        report.problem(account, "a deletion is overdue", to_base64url(blob))


async def _check_closed(storage: Storage, account: AccountId, report: Report) -> None:
    """Of an erased account, nothing is there but its last receipt; or it is still being emptied."""
    report.checked["erased accounts"] += 1
    receipt = await closing_rows.last_receipt(storage.database, account)
    try:
        closed = receipt is not None and open_receipt(receipt, *storage.relayers).op == CLOSE
    except CryptoError:
        closed = False
    if not closed:
        report.problem(account, "an erased account has no receipt of it", account_text(account))
    elif receipt is not None:
        await _check_journal(storage, account, [receipt], report)
        await _check_emptied(storage, account, envelope.blob_id(receipt), report)
    await _check_overdue(storage, account, report)


async def _check_emptied(storage: Storage, account: AccountId, kept: str, report: Report) -> None:
    if not await closing_rows.is_purged(storage.database, account):
        return
    left = await closing_rows.remnants(storage.database, account, envelope.blob_hash(kept))
    if not storage.blobs.transactional:
        objects = {name async for name in storage.blobs.names(account)} - {kept}
        noted = await closing_rows.find_noted(storage.database, account)
        left += sorted(name for name in objects if envelope.blob_hash(name) not in noted)
    for what in left:
        report.problem(account, "something is left of an erased account", what)
