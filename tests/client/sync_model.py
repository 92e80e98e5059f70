"""A relayer in memory that takes what a sync brings by the relayer's own rules.

The rules are those of `relayer.archives.validation`; what an owner does there is done with the
client's own sealing. Nothing else of a relayer is here: no words, no vectors, no rights.
"""

import base64
import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from memrelay.operations.archives import RowName
from memrelay.replication.agreement import START, Agreement, Position
from memrelay.replication.conflicts import Opener, name_earlier, with_state
from memrelay.replication.merging import State
from memrelay.replication.replicator import Outcome, Replicator
from memrelay.replication.side import Changes, Side, take_receipt
from memrelay.rows import bare, memory_of
from memrelay.sealed.archive import Record
from memrelay.sealed.envelope import Address, blob_id, seal_envelope
from memrelay.sealed.keys import Identity, Root, account_id_of
from memrelay.sealed.ledger import Keyring
from memrelay.sealed.objects import write_json
from memrelay.sealed.receipts import Receipt
from memrelay.verification import Item
from relayer.archives import validation
from relayer.portable import MovedMemory

WRITER = "ab" * 32
NAMESPACE = "team"
_BEGIN_MS = 1_700_000_000_000


class Killed(Exception):
    """The client ended within a sync."""


class ModelSide:
    """One such relayer, by the interface of `Side`; `left` requests until the client is killed."""

    def __init__(self, url: str, opener: Opener, clock_ms: int) -> None:
        self.url, self.opener = url, opener
        self.namespaces: dict[str, Record] = {NAMESPACE: {}}
        self.rows: dict[str, Record] = {}
        self.gone: set[str] = set()
        self.log: list[Receipt] = []
        self.left: int | None = None
        self._clock_ms = clock_ms
        self._seq = 0

    # What an owner does

    def remember(self, memory: str, text: str) -> None:
        self._tick()
        self._store(self._row(memory, text, 1), "remember")

    def edit(self, memory: str, text: str) -> None:
        self._tick()
        before = self.rows[memory]
        self._step_back(memory)
        changed = self._row(memory, text, before["revision"] + 1) | {
            name: before[name] for name in ("pinned", "review", "created_at", "links")
        }
        self._store(changed, "edit")

    def decide(self, memory: str, **changes: Any) -> None:
        self._tick()
        row = self.rows[memory]
        if any(row[name] != value for name, value in changes.items()):
            self.rows[memory] = row | changes
            self._sign("state", [(memory, row["revision"], "state")])

    def forget(self, memory: str) -> None:
        self._tick()
        self._erase([memory])

    # What a sync asks

    def read_changes(self, begin: Position, names: frozenset[str]) -> Changes:
        del names
        changes = Changes(begin, is_whole=begin == START)
        stored: dict[str, int] = {}
        for receipt in self.log[begin.seq :]:
            take_receipt(changes, receipt, stored)
        changes.end = Position(len(self.log), len(self.log).to_bytes(32, "big"))
        return changes

    def inventory(self, names: Iterable[str]) -> dict[str, list[Item]]:
        del names
        found: dict[str, list[Item]] = {}
        for row in self.rows.values():
            at = row["superseded_at"]
            item = Item(
                id=memory_of(row),
                type="memory",
                revision=row["revision"],
                format="sealed",
                namespace=NAMESPACE,
                epoch=1,
                blob_id=row["blob_id"],
                size=1,
                seq=row["seq"],
                earlier=row["revision_of"] is not None,
                pinned=row["pinned"],
                review=row["review"],
                stale=row["stale"],
                superseded_at=None if at is None else datetime.fromisoformat(at),
                superseded_by=row["superseded_by"],
            )
            found.setdefault(item.id, []).append(item)
        return found

    def read_memories(self, ids: Sequence[str]) -> dict[str, list[Record]]:
        found = {i: [r for r in self.rows.values() if memory_of(r) == i] for i in ids}
        return {
            i: sorted(rows, key=lambda row: (row["revision_of"] is not None, row["revision"]))
            for i, rows in found.items()
            if rows
        }

    def read_single(self, ids: frozenset[str]) -> Iterator[Record]:
        yield from (self.rows[i] for i in sorted(ids))

    def read_turns(self, ids: Sequence[str]) -> Iterator[Record]:
        del ids
        yield from ()

    def find_erasable(self, stones: Sequence[Record]) -> list[Record]:
        return [stone for stone in stones if stone["id"] in self.rows]

    # What a sync brings

    def bring_namespaces(self, names: Iterable[str], source: "ModelSide") -> None:
        assert set(names) <= self.namespaces.keys() & source.namespaces.keys()

    def bring_tombstones(self, stones: Sequence[Record]) -> None:
        if stones:
            self._take_request()
            self._erase([stone["id"] for stone in stones])

    def bring_rows(self, rows: Sequence[Record]) -> dict[str, str]:
        self._take_request()
        moved = {r["id"]: msgspec.convert(bare(r), MovedMemory) for r in rows}
        present = {
            uuid.UUID(i): {"blob_id": _hash(row["blob_id"]), "revision": row["revision"]}
            for i, row in self.rows.items()
        }
        sound = list(moved.values())
        passed = validation.passed(sound, present)
        refused = validation.orphans(sound, present)
        gone = set(map(uuid.UUID, self.gone))
        outcomes = {
            i: validation.outcome(one, refused, present, gone, passed) for i, one in moved.items()
        }
        for memory in map(str, passed):
            if outcomes[memory] == "imported":
                self._step_back(memory)
        fresh = [row for row in rows if outcomes[row["id"]] == "imported"]
        for row in fresh:
            self._place(row)
        named = [(memory_of(r), r["revision"], r["blob_id"]) for r in fresh]
        self._sign("import", named)
        self._sign("state", [(r["id"], r["revision"], "s") for r in fresh if not r["revision_of"]])
        return outcomes

    def bring_states(self, states: Sequence[Record]) -> dict[str, str]:
        self._take_request()
        outcomes = {}
        for one in sorted(states, key=lambda one: one["superseded_at"] is None):
            row = self.rows.get(one["id"])
            if row is None or row["revision"] != one["revision"]:
                outcomes[one["id"]] = "refused" if row is None else "differs"
                continue
            changed = {name: value for name, value in one.items() if name in row}
            held = {name: row[name] for name in changed}
            outcomes[one["id"]] = "unchanged" if held == changed else "imported"
            self.rows[one["id"]] = row | changed | {"given_expires_at": one["expires_at"]}
        named = [(i, self.rows[i]["revision"], "s") for i, s in outcomes.items() if s == "imported"]
        self._sign("import", named)
        self._sign("state", named)
        return outcomes

    # Inside

    def _place(self, row: Record) -> None:
        """A memory whose words another one says here gives way to it."""
        others = [
            other["id"]
            for other in self.rows.values()
            if other["fingerprint"] == row["fingerprint"]
            and other["superseded_at"] is None
            and other["revision_of"] is None
        ]
        if others and row["superseded_at"] is None and row["revision_of"] is None:
            row = row | {"superseded_at": _moment(self._clock_ms), "superseded_by": others[0]}
        self.rows[row["id"]] = row

    def _step_back(self, memory: str) -> None:
        before = self.rows.pop(memory)
        row = before["id"]
        earlier = name_earlier(row, before["revision"])
        at = _moment(self._clock_ms)
        self.rows[earlier] = before | {"id": earlier, "revision_of": row, "superseded_at": at}

    def _erase(self, memories: Iterable[str]) -> None:
        named: list[RowName] = []
        for memory in memories:
            rows = [row for row in self.rows.values() if memory_of(row) == memory]
            named += [(memory, row["revision"], row["blob_id"]) for row in rows]
            for row in rows:
                del self.rows[row["id"]]
            if memory not in self.gone and not rows:
                named.append((memory, 1, "A" * 43))
            self.gone.add(memory)
        self._sign("forget", named)

    def _take_request(self) -> None:
        if self.left == 0:
            raise Killed
        self.left = None if self.left is None else self.left - 1
        self._tick()

    def _tick(self) -> None:
        self._clock_ms += 10

    def _sign(self, op: str, items: Sequence[RowName]) -> None:
        if items:
            self.log.append(
                Receipt(
                    account=self.opener.account,
                    seq=len(self.log) + 1,
                    prev=bytes(32),
                    time_ms=self._clock_ms,
                    op=op,
                    actor=bytes(32),
                    namespace=NAMESPACE,
                    epoch=1,
                    items=tuple(items),
                    serial=1,
                    relayer=bytes(32),
                    digest=bytes(32),
                )
            )

    def _store(self, row: Record, op: str) -> None:
        self.rows[row["id"]] = row
        self._sign(op, [(row["id"], row["revision"], row["blob_id"])])

    def _row(self, memory: str, text: str, revision: int) -> Record:
        self._seq += 1
        row = {
            "record": "memory", "id": memory, "namespace": NAMESPACE, "epoch": 1,
            "seq": self._seq, "revision": revision, "revision_of": None, "type": 1,
            "format": "sealed", "kind": "fact", "importance": "standard", "confidence": "high",
            "writer": WRITER, "event_time": None, "created_at": _moment(self._clock_ms),
            "stored_at": _moment(self._clock_ms), "seen_count": 1, "last_seen_at": None,
            "word_count": 1, "source": None, "index_version": 1, "embedding_model": None,
            "embedding_version": "", "postings": None, "vectors": [], "links": [],
            "fingerprint": _fingerprint(text),
        }  # fmt: skip
        key = self.opener.find_key(row)
        assert key is not None
        said = {"v": 1, "ns": NAMESPACE, "text": text, "writer": WRITER, "metadata": {}}
        address = Address(1, self.opener.account, uuid.UUID(memory), revision)
        sealed = seal_envelope(address, key, write_json(said), created_ms=self._clock_ms)
        row |= {"blob": base64.b64encode(sealed).decode(), "blob_id": blob_id(sealed)}
        return with_state(row, State())


def make_sides(skew_ms: int = 0) -> tuple[ModelSide, ModelSide]:
    """Two relayers of one account, the clock of the second so far ahead."""
    account = account_id_of(Identity(bytes(32)).public_key)
    keyring = Keyring(account)
    keyring.add(Root(bytes(range(32)), 1))
    opener = Opener(account, keyring)
    return (
        ModelSide("here", opener, _BEGIN_MS),
        ModelSide("there", opener, _BEGIN_MS + skew_ms),
    )


def replicate(sides: tuple[ModelSide, ModelSide], agreement: Agreement) -> Outcome:
    """Bring both into step."""
    return Replicator(cast("tuple[Side, Side]", sides), agreement).run()


def no_agreement() -> Agreement:
    """An agreement on nothing yet, in no file."""
    return Agreement(None, ("aa", "bb"))


def _fingerprint(text: str) -> str:
    return base64.b64encode(hashlib.blake2b(text.encode(), digest_size=16).digest()).decode()


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def _hash(name: str) -> bytes:
    return base64.urlsafe_b64decode(f"{name}=")
