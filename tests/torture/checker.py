"""The proof after a run: the ledgers against rows, blobs and receipts, read without the relayer.

Not here: the reading itself (`tests/outside.py`, which shares no code with the product).

- Every acknowledged memory is there once and says what it should; what was never answered is there
  at most once; what was erased is nowhere.
- The chain of receipts is whole, every blob belongs to a row or is to be deleted, no job is left.
"""

import asyncio
import base64
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memrelay import MemoryClient
from tests.outside import Outside, opened
from tests.reference import Root, Signer
from tests.torture.ground import Ground
from tests.torture.ledger import Entry, Fate, Ledger

QUIET_S_MAX = 200.0  # a lost job is queued again after two minutes
_OPEN_JOBS = "SELECT entrypoint, status FROM pgqueuer"
_WAITING_TURNS = "SELECT state FROM episodes WHERE account_id = $1 AND state <> 'done'"
_ON_ITS_WAY_OUT = "SELECT blob_id FROM blob_outbox WHERE account_id = $1"
_UNEMBEDDED = """
SELECT memory_id FROM memories m
WHERE account_id = $1 AND NOT EXISTS (SELECT FROM vectors v WHERE v.account_id = $1
                                                              AND v.memory_id = m.memory_id)
"""


@dataclass(frozen=True)
class Said:
    """What one living memory says now."""

    id: str
    namespace: str
    text: str


async def quiet(ground: Ground, accounts: Sequence[dict[str, Any]]) -> list[str]:
    """Wait until nothing is left to do; what is, after all that time."""
    looks = [await _outside(ground, account) for account in accounts]
    deadline = time.monotonic() + QUIET_S_MAX
    while left := await asyncio.to_thread(_unfinished, looks):
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(1)
    return left


def _unfinished(looks: Sequence[Outside]) -> list[str]:
    jobs = Counter(f"a job {r['entrypoint']} is {r['status']}" for r in looks[0].fetch(_OPEN_JOBS))
    left = [f"{n} × {what}" for what, n in jobs.items()]
    for look in looks:
        turns = Counter(r["state"] for r in look.fetch(_WAITING_TURNS, look.number))
        left += [f"{n} turns are {state}" for state, n in turns.items()]
        if rows := look.fetch(_UNEMBEDDED, look.number):
            left.append(f"{len(rows)} memories have no vector")
    return left


async def proven(ground: Ground, account: dict[str, Any], ledgers: Sequence[Ledger]) -> list[str]:
    """What does not hold of an account; nothing, if all is well."""
    far = await ground.far.fetched(ground.folder / account["account_id"]) if ground.far else None
    look = await _outside(ground, account, far)
    problems = await asyncio.to_thread(_compared, look, account, ledgers)
    async with MemoryClient(
        url=ground.relayers[0].url,
        **{k: account[k] for k in ("account_id", "private_key", "relayer_key", "custody")},
    ) as client:
        verified = await client.verify(open_all=True)
    problems += [f"verify: {finding.what}" for finding in verified.findings]
    return problems + [f"verify: {what} unchecked" for what in verified.unchecked]


async def _outside(ground: Ground, account: dict[str, Any], blobs: Path | None = None) -> Outside:
    return Outside(
        await ground.database_url(),
        bytes.fromhex(account["relayer_key"]),
        account["account_id"],
        ground.relayers[0].data_dir,
        blobs or ground.blobs,
    )


def _compared(look: Outside, account: dict[str, Any], ledgers: Sequence[Ledger]) -> list[str]:
    owner = Signer(bytes.fromhex(account["private_key"]))
    objects = look.objects()
    said = _said(look, owner, objects)
    problems = _receipts(look)
    problems += _blobs(look, objects)
    dead = look.tombstones()
    known: set[str] = set()
    for ledger in ledgers:
        by_word: dict[str, list[Said]] = defaultdict(list)
        for one in said:
            if one.namespace == ledger.namespace:
                for word in one.text.replace(".", " ").replace(",", " ").split():
                    by_word[word].append(one)
        for entry in ledger.entries:
            found = by_word[entry.word]
            known |= {one.id for one in found}
            problems += [f"{entry.fate}: {what}" for what in wrong(entry, found, dead)]
        strangers = [
            one for one in said if one.namespace == ledger.namespace and one.id not in known
        ]
        problems += ["a memory that nobody wrote"] * len(strangers)
    return problems


def wrong(entry: Entry, found: Sequence[Said], dead: set[str]) -> list[str]:
    """What is wrong with one entry's memories."""
    if entry.fate is Fate.ERASED:
        return ["it is there"] * len(found) + ["no tombstone"] * (entry.id not in dead)
    if entry.fate is Fate.ERASING:
        return ["it is doubled"] * (len(found) > 1)
    if entry.fate in {Fate.ABANDONED, Fate.SENT}:
        return ["it is doubled"] * (len(found) > 1)
    if len(found) != 1:
        return [f"it is there {len(found)} times"]
    wrong = ["it has another id"] if entry.id not in {"", found[0].id} else []
    if entry.exact and found[0].text not in entry.texts:
        wrong.append("it says something else")
    return wrong


def _said(look: Outside, owner: Signer, objects: dict[str, bytes]) -> list[Said]:
    """Every memory's newest revision, opened with the owner's root."""
    newest = {}
    for row in sorted(look.rows(), key=lambda row: row.revision):
        newest[row.id] = row
    root = next(key for key in look.keys(owner) if isinstance(key, Root))
    said = []
    for row in newest.values():
        record = opened(root.namespace(look.account, row.namespace), objects[row.blob_id])
        assert record is not None, row
        said.append(Said(row.id, row.namespace, record["text"]))
    return said


def _receipts(look: Outside) -> list[str]:
    try:
        receipts = look.receipts()
    except (AssertionError, ValueError) as error:
        return [f"the chain of receipts breaks: {type(error).__name__}"]
    named = Counter(
        (item[0], item[1])
        for receipt in receipts
        if receipt["op"] in {"remember", "analyze", "edit"} and receipt["items"]
        for item in receipt["items"]
        if item[1]
    )
    return [f"a revision has {n} receipts" for n in named.values() if n > 1]


def _blobs(look: Outside, objects: dict[str, bytes]) -> list[str]:
    """Blobs that no row names must be on their way out: a crash left them."""
    named = {row.blob_id for row in look.rows()}
    leaving = {
        base64.urlsafe_b64encode(row["blob_id"]).decode().rstrip("=")
        for row in look.fetch(_ON_ITS_WAY_OUT, look.number)
    }
    sealed = {name for name, data in objects.items() if data[:1] == b"\x01"}
    problems = ["a row without its blob"] * len(named - set(objects))
    return problems + ["a blob that nothing names"] * len(sealed - named - leaving)
