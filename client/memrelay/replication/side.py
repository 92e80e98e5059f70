"""One of two relayers that are kept in step: what changed there, what it has, and bringing more.

It does not own what becomes of it (`merging.py`, `replicator.py`).

- A chain of receipts is verified as it is read; where it does not go on from where it was read to,
  the relayer has another history, and everything is compared anew.

Source: SPEC.md §17.6.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import UnionType

from memrelay.answers import make_malformed_error
from memrelay.archive_reader import list_own_keys
from memrelay.archive_writer import check_record
from memrelay.errors import Invalid, UntrustedRelayer
from memrelay.replication.agreement import START, Position
from memrelay.replication.conflicts import Opener, to_moment
from memrelay.rows import bare, bring, pages_of
from memrelay.sealed.archive import Record
from memrelay.sealed.keys import account_bytes
from memrelay.sealed.receipts import History, Receipt
from memrelay.sync_client import SyncMemoryClient
from memrelay.verification import Item

_RECEIPTS_PAGE = 200
_IDS_AT_ONCE = 10  # of an export by ids
_ROWS_A_PAGE = 100  # of an export by pages, at most
_NAMES_AT_ONCE = 64  # of an inventory
_BLOBS_MAX = 1000  # of a tombstone
_STORING = frozenset({"remember", "analyze", "restore", "import", "consolidate", "edit"})
_ERASING = frozenset({"forget", "expire"})


@dataclass
class Changes:
    """Everything that a chain of receipts tells of some namespaces, from a position on.

    Attributes:
        end: where the chain ended.
        ids: what was stored, edited or decided; `erased` are tombstones by id.
        decided: when the state of a memory was decided last, by somebody.
        is_whole: whether the chain was read from its beginning.
        is_rebuilt: whether it begins anew, so that it does not tell of all that was erased.
    """

    end: Position
    ids: set[str] = field(default_factory=set)
    erased: dict[str, Record] = field(default_factory=dict)
    decided: dict[str, int] = field(default_factory=dict)
    is_whole: bool = False
    is_rebuilt: bool = False


class Side:
    """A relayer, asked and told as an owner of the account."""

    def __init__(self, client: SyncMemoryClient) -> None:
        self.client = client
        self.url = client.settings.url
        self.account = account_bytes(client.settings.account_id)
        self.relayer = client.statement().relayer
        self.refresh()

    def refresh(self) -> None:
        """Read the account's keys and namespaces as they are now."""
        self.opener = Opener(self.account, self.client.run(self.client.session.keyring()))
        self.namespaces = {record["name"]: record for record in self._pages("namespaces")}

    # What changed

    def read_changes(self, begin: Position, names: frozenset[str]) -> Changes | None:
        """Return what happened in these namespaces since; None if the chain is another by now."""
        history = History(
            self.client.run(self.client.session.relayers()),
            self.account,
            seq=begin.seq,
            head=begin.head,
        )
        changes = Changes(begin, is_whole=begin == START)
        stored: dict[str, int] = {}
        newest: bytes | None = None
        while True:
            page = self.client.receipt_page(history.seq, _RECEIPTS_PAGE)
            for data in page.receipt_bytes:
                try:
                    receipt = history.follow(data)
                except UntrustedRelayer:
                    if begin == START:
                        raise
                    return None
                newest = data
                if receipt.namespace is None or receipt.namespace in names:
                    take_receipt(changes, receipt, stored)
            if not page.receipts:
                if page.seq < history.seq or (begin != START and page.seq < begin.seq):
                    return None
                changes.end = Position(history.seq, history.head)
                if newest is not None:  # anybody can pose as a forerunner of the pinned key
                    self.client.check_exported(newest)
                return changes

    def tombstones(self) -> Iterator[Record]:
        """Yield all that was erased here, but turns that are gone since their facts were taken."""
        for record in self._pages("tombstones"):
            if not record.get("taken"):
                yield record

    # What is there

    def inventory(self, names: Iterable[str]) -> dict[str, list[Item]]:
        """Return id → its stored revisions, or the turn, of everything in these namespaces."""
        found: dict[str, list[Item]] = {}
        wanted = sorted(set(names) & self.namespaces.keys())
        for part in pages_of(wanted, _NAMES_AT_ONCE):
            cursor = ""
            while True:
                page, following = self.client.inventory_page(part, cursor)
                for item in page:
                    found.setdefault(item.id, []).append(item)
                if following is None:
                    break
                cursor = following
        return found

    def read_memories(self, ids: Sequence[str]) -> dict[str, list[Record]]:
        """Return id → its rows, the current one first, then the earlier ones from the oldest on."""
        found: dict[str, list[Record]] = {}
        for part in pages_of(ids, _IDS_AT_ONCE):
            for row in self._pages("memories", ids=part):
                found.setdefault(row["revision_of"] or row["id"], []).append(row)
        return {
            memory: sorted(rows, key=lambda row: (row["revision_of"] is not None, row["revision"]))
            for memory, rows in found.items()
            if any(row["revision_of"] is None for row in rows)
        }

    def read_single(self, ids: frozenset[str]) -> Iterator[Record]:
        """Yield the rows of memories that have one revision; in the way that asks less often."""
        total = sum(info.memory_count for info in self.client.namespaces())
        if len(ids) * _ROWS_A_PAGE <= total * _IDS_AT_ONCE:
            for rows in self.read_memories(sorted(ids)).values():
                yield from rows[:1]
            return
        left = set(ids)
        for row in self._pages("memories"):
            if row["id"] in left:
                left.discard(row["id"])
                yield row
            if not left:
                return

    def read_turns(self, ids: Sequence[str]) -> Iterator[Record]:
        """Yield those of these turns that are kept; one that waits stays where it is."""
        for part in pages_of(ids, _IDS_AT_ONCE):
            for row in self._pages("episodes", ids=part):
                if row["state"] == "kept":
                    yield row

    def _pages(self, part: str, *, ids: Sequence[str] = ()) -> Iterator[Record]:
        kind = _KINDS[part]
        cursor: str | None = ""
        while cursor is not None:
            records, cursor = self.client.export_page(part, cursor=cursor, ids=ids)
            for record in records:
                row = {"record": kind, **record}
                try:
                    check_record(row)
                    _check_types(row)
                except Invalid as error:
                    raise make_malformed_error(f"a record of {part}") from error
                yield row

    # Bringing more

    def bring_namespaces(self, names: Iterable[str], source: "Side") -> None:
        """Make namespaces and epochs known here that rows of another relayer are about to name."""
        lacking: list[Record] = []
        for name in sorted(set(names)):
            record = source.namespaces.get(name)
            known = self.namespaces.get(name)
            if record is None:
                continue
            keys = list_own_keys(self.opener.keyring, record)
            there = [] if known is None else known["keys"]
            missing = [key for key in keys if key not in there]
            if missing:
                # Choices travel with a new one only: for others, somebody may have chosen here.
                chosen = record if known is None else {"ttl_s": None}
                lacking.append(bare(chosen) | {"name": name, "keys": missing})
        for page in pages_of(lacking):
            self.client.import_page({"namespaces": list(page)})
        for record in lacking:
            before = self.namespaces.get(record["name"], {"keys": []})
            self.namespaces[record["name"]] = record | {"keys": [*before["keys"], *record["keys"]]}

    def bring_rows(self, rows: Sequence[Record]) -> dict[str, str]:
        """Bring rows; return what became of each, by its id."""
        return bring(self.client, rows)

    def find_erasable(self, stones: Sequence[Record]) -> list[Record]:
        """Return those of these tombstones whose memories or turns are still here."""
        found: list[Record] = []
        for part in pages_of(stones):
            told = self.client.status([stone["id"] for stone in part])
            lacking = {one.id for one in told if one.status == "not_found"}
            found += [one for one in part if one["id"] not in lacking]
        return found

    def bring_tombstones(self, stones: Sequence[Record]) -> None:
        """Erase here what was erased elsewhere."""
        for page in pages_of(stones):
            self.client.import_page({"tombstones": [bare(stone) for stone in page]})

    def bring_states(self, states: Sequence[Record]) -> dict[str, str]:
        """Let states hold here; return what became of each, by its memory's id."""
        outcomes: dict[str, str] = {}
        for page in pages_of(states):
            done = self.client.import_page({"states": list(page)})
            outcomes |= {result.id: result.status for result in done.results}
        return outcomes


_KINDS = {
    "namespaces": "namespace",
    "memories": "memory",
    "episodes": "episode",
    "tombstones": "tombstone",
}


# What is compared of a row, or written anew: the rest goes to the other relayer as it came.
_TYPES: Mapping[str, Mapping[str, type | UnionType]] = {
    "memory": {
        "pinned": bool,
        "stale": bool,
        "superseded_by": str | None,
        "given_expires_at": str | None,
        "created_at": str,
        "stored_at": str,
        "links": list,
    },
    "episode": {"namespace": str, "state": str},
    "namespace": {"ttl_s": int | None, "keys": list},
}
_TIMES = ("superseded_at", "given_expires_at", "created_at", "stored_at")


def _check_types(row: Record) -> None:
    for name, types in _TYPES.get(row["record"], {}).items():
        if not isinstance(row.get(name, ...), types):
            raise Invalid("record", f"A record has no good {name}.")
    for name in _TIMES if row["record"] == "memory" else ():
        try:
            datetime.fromisoformat(row[name] or "1970-01-01T00:00:00+00:00").timestamp()
        except (ValueError, OverflowError):
            raise Invalid("record", f"A record has no good {name}.") from None


def take_receipt(changes: Changes, receipt: Receipt, stored: dict[str, int]) -> None:
    """Note what a receipt tells; `stored` is when each memory came last, by earlier receipts."""
    ids = [item for item, _, _ in receipt.items]
    if receipt.op in _ERASING:
        for item, _, blob in receipt.items:
            _bury(changes, receipt, item, blob)
    elif receipt.op in _STORING:
        changes.ids.update(item for item, revision, _ in receipt.items if revision > 0)
        stored |= dict.fromkeys(ids, receipt.time_ms)
    elif receipt.op == "state":
        changes.ids.update(ids)
        for item in ids:
            # The state that a memory came with was decided elsewhere, or by nobody.
            if stored.get(item) == receipt.time_ms:
                changes.decided.pop(item, None)
            else:
                changes.decided[item] = receipt.time_ms
    elif receipt.op == "reseal":
        changes.ids.update(ids)
    elif receipt.op == "rebuild":
        changes.is_rebuilt = True


def _bury(changes: Changes, receipt: Receipt, item: str, blob: str) -> None:
    """Note an erasure as an archive has it: the blobs of all revisions behind one id."""
    stone = changes.erased.setdefault(
        item,
        {
            "record": "tombstone",
            "id": item,
            "namespace": receipt.namespace,
            "blob_ids": [],
            "erased_at": to_moment(receipt.time_ms),
            **({"expired": True} if receipt.op == "expire" else {}),
        },
    )
    if blob not in stone["blob_ids"] and len(stone["blob_ids"]) < _BLOBS_MAX:
        stone["blob_ids"].append(blob)
