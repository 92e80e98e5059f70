"""Compares what a relayer stores with what its receipts promise: rules, free of I/O.

It does not own fetching any of it (`operations/audit.py`) or the signatures (`sealed/`).

- What receipts name must be there, and nothing else; what they erased must be gone.
- A blob is judged by its own bytes: its name is their hash, and its header says whose it is.
- Nothing is judged by a part of the chain that was not followed. What was not checked is said.
- Memory grows by about 300 bytes with each stored revision; blobs are judged and let go.

Source: SPEC.md §15.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple, Self
from uuid import UUID

from memrelay.answers import Answer, make_malformed_error
from memrelay.errors import Invalid
from memrelay.sealed.envelope import EPISODE, MEMORY, SUMMARY, blob_id, read_header
from memrelay.sealed.objects import integer, uuid_text
from memrelay.sealed.receipts import Checkpoint, Receipt

TYPES = {"memory": MEMORY, "episode": EPISODE, "summary": SUMMARY}
NEW_STATE: Mapping[str, Any] = {
    "pinned": False,
    "review": None,
    "stale": False,
    "superseded_at": None,
    "superseded_by": None,
}
_CLOCKS_APART_MS = (
    300_000  # of relayers of one account; they keep the order of receipts all the same
)
_STORING = frozenset("remember analyze restore edit consolidate import reseal rebuild".split())
_RENAMING = frozenset(["reseal", "rebuild"])  # may give a revision another blob
_FORMER_ID = 8  # the version of the UUIDs that turns had once, and are not named by again
_ERASING = frozenset(["forget", "expire"])
_GRANTING = frozenset(["grant", "revoke"])


@dataclass(frozen=True, kw_only=True)
class Finding(Answer):
    """One thing that does not hold: what it is about, what was expected there and what was found.

    `what` is a fixed word: chain, head, fork, rollback, rebuilt, checkpoint, grants, receipt,
    unnamed, missing, erased, blob, header, state or sealed.
    """

    what: str
    id: str | None = None
    seq: int | None = None
    expected: str | None = None
    found: str | None = None


@dataclass(frozen=True, kw_only=True)
class Item(Answer):
    """A stored revision or turn, as `/v1/inventory` names it."""

    id: str
    type: str
    revision: int
    format: str
    namespace: str
    epoch: int
    blob_id: str
    size: int
    seq: int | None
    earlier: bool
    pinned: bool
    review: str | None
    stale: bool
    superseded_at: datetime | None
    superseded_by: str | None

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Return the item in a JSON object.

        Raises:
            ServerError: `answer.malformed`, also when its id or its size is none.
        """
        item = super().from_json(value)
        try:
            uuid_text(item.id)
            integer(item.size)
        except Invalid:
            raise make_malformed_error(cls.__name__) from None
        return item

    @property
    def place(self) -> tuple[bytes, int]:
        """The id of its memory and the number of its revision."""
        return UUID(self.id).bytes, self.revision

    @property
    def state(self) -> dict[str, Any]:
        """Its state, as a `state` object tells it."""
        at = self.superseded_at
        return {
            "pinned": self.pinned,
            "review": self.review,
            "stale": self.stale,
            "superseded_at": None if at is None else round(at.timestamp() * 1000),
            "superseded_by": self.superseded_by,
        }


class Promise(NamedTuple):
    """The blob that receipts promise for a revision, and the receipt that did so last."""

    revision: int
    blob_id: str
    namespace: str | None
    epoch: int | None
    seq: int


class StatePromise(NamedTuple):
    """The newest `state` object of a memory; an edit since then made it no longer stale."""

    blob_id: str
    seq: int
    refreshed: bool = False


@dataclass
class Promises:
    """The promises of all receipts of an account together; feed them in order.

    `complete` says that they were followed from the account's beginning.
    """

    complete: bool = True
    closed: bool = False
    serial: int = 0
    seq: int = 0
    time_ms: int = 0
    grants: dict[int, str] = field(default_factory=dict)
    states: dict[bytes, StatePromise] = field(default_factory=dict)
    erased: set[bytes] = field(default_factory=set)
    _named: dict[bytes, tuple[Promise, ...]] = field(default_factory=dict)
    _former: dict[str, bytes] = field(default_factory=dict)  # turns with former ids, by blob

    def add(self, receipt: Receipt) -> Iterator[Finding]:
        """Take in the next receipt; what it contradicts in those before it."""
        if receipt.op == "rebuild":
            self.complete = False
        elif self.closed:
            yield _about(receipt, "nothing after the account was closed", receipt.op)
        yield from self._judge_serial(receipt)
        yield from self._judge_time(receipt)
        self.serial, self.seq, self.time_ms = receipt.serial, receipt.seq, receipt.time_ms
        if receipt.op == "close":
            self.closed = True
            self._named.clear()
        for id_text, revision, name in receipt.items:
            item = UUID(id_text).bytes
            if receipt.op in _GRANTING:
                self.grants[receipt.serial] = name
            elif receipt.op == "state":
                self.states[item] = StatePromise(name, receipt.seq)
            elif receipt.op in _ERASING:
                yield from self._erase(receipt, item, revision, name)
            elif receipt.op in _STORING:
                yield from self._store(receipt, item, revision, name)

    def _judge_serial(self, receipt: Receipt) -> Iterator[Finding]:
        """A grant takes the next serial; nothing else moves it."""
        begins = self.seq == 0 and not self.complete
        due = self.serial + (receipt.op in _GRANTING)
        if not begins and receipt.serial != due:
            yield _about(receipt, f"grant serial {due}", f"grant serial {receipt.serial}")

    def _judge_time(self, receipt: Receipt) -> Iterator[Finding]:
        """Judge that time does not go back; a clock that was far ahead may have been set right."""
        if 0 < self.time_ms - receipt.time_ms <= _CLOCKS_APART_MS:
            expected = f"a time from {self.time_ms} ms on, that of the receipt before"
            yield _about(receipt, expected, f"{receipt.time_ms} ms")

    def _store(self, receipt: Receipt, item: bytes, revision: int, name: str) -> Iterator[Finding]:
        if revision == 0:  # a turn whose facts these are; it is not kept any longer
            self._forget(self._former.get(name, item), 1)
            return
        known = self.find_promise(item, revision)
        if known is not None and known.blob_id != name and receipt.op not in _RENAMING:
            yield _about(receipt, f"blob {known.blob_id}", f"blob {name}", item)
        if item in self.erased:
            yield _about(receipt, "nothing of what was erased", f"blob {name}", item)
        if receipt.op == "edit" and item in self.states:
            self.states[item] = self.states[item]._replace(refreshed=True)
        self.erased.discard(item)
        self._forget(item, revision)
        stored = Promise(revision, name, receipt.namespace, receipt.epoch, receipt.seq)
        self._named[item] = (*self._named.get(item, ()), stored)
        if UUID(bytes=item).version == _FORMER_ID:
            self._former[name] = item

    def _erase(self, receipt: Receipt, item: bytes, revision: int, name: str) -> Iterator[Finding]:
        item = self._former.get(name, item)
        known = self.find_promise(item, revision)
        if known is not None and known.blob_id != name:
            yield _about(receipt, f"blob {known.blob_id}", f"blob {name}", item)
        self._named.pop(item, None)
        self.states.pop(item, None)
        self.erased.add(item)

    def _forget(self, item: bytes, revision: int) -> None:
        left = tuple(n for n in self._named.pop(item, ()) if n.revision != revision)
        if left:
            self._named[item] = left

    def find_promise(self, item: bytes, revision: int) -> Promise | None:
        """Find what the receipts promise for a revision."""
        return next((n for n in self._named.get(item, ()) if n.revision == revision), None)

    def __iter__(self) -> Iterator[tuple[bytes, Promise]]:
        """Every promised revision."""
        yield from ((item, n) for item, revisions in self._named.items() for n in revisions)

    def judge(self, item: Item) -> Iterator[Finding]:
        """Yield what is wrong with the name under which a revision is stored."""
        place, revision = item.place
        named = self.find_promise(place, revision)
        if named is None and (place in self.erased or self.closed):
            yield Finding(what="erased", id=item.id, expected="nothing", found=item.blob_id)
        elif named is None:
            if self.complete:
                found = f"revision {revision}, blob {item.blob_id}"
                yield Finding(what="unnamed", id=item.id, expected="a receipt", found=found)
        elif named.blob_id != item.blob_id:
            yield Finding(
                what="receipt",
                id=item.id,
                seq=named.seq,
                expected=f"revision {revision}, blob {named.blob_id}",
                found=f"blob {item.blob_id}",
            )
        elif (named.namespace, named.epoch) != (item.namespace, item.epoch):
            yield Finding(
                what="receipt",
                id=item.id,
                seq=named.seq,
                expected=f"namespace {named.namespace!r}, epoch {named.epoch}",
                found=f"namespace {item.namespace!r}, epoch {item.epoch}",
            )


def _about(receipt: Receipt, expected: str, found: str, item: bytes | None = None) -> Finding:
    about = None if item is None else str(UUID(bytes=item))
    return Finding(what="receipt", id=about, seq=receipt.seq, expected=expected, found=found)


def judge_blob(account: bytes, item: Item, data: bytes | None, problem: str) -> Iterator[Finding]:
    """Yield what is wrong with a revision's own bytes; `problem` says why there are none."""
    if data is None:
        yield Finding(what="blob", id=item.id, expected=item.blob_id, found=problem)
        return
    if (name := blob_id(data)) != item.blob_id:
        yield Finding(what="blob", id=item.id, expected=item.blob_id, found=f"bytes named {name}")
    elif item.format == "sealed":
        yield from _judge_header(account, item, data)
    elif _is_envelope_of(account, data):
        # Called so, one of ours would be shown without its text, and found by nothing.
        found = f"an envelope of this account, called {item.format}"
        yield Finding(what="header", id=item.id, expected="foreign bytes", found=found)


def _is_envelope_of(account: bytes, data: bytes) -> bool:
    try:
        return read_header(data).address.account == account
    except Invalid:
        return False


def _judge_header(account: bytes, item: Item, data: bytes) -> Iterator[Finding]:
    try:
        header = read_header(data)
    except Invalid as error:
        yield Finding(what="header", id=item.id, expected="an envelope", found=str(error))
        return
    address = header.address
    pairs = {
        "type": (TYPES.get(item.type), address.type),
        "account": (account.hex(), address.account.hex()),
        "memory": (item.id, str(address.memory)),
        "revision": (item.revision, address.revision),
        "epoch": (item.epoch, header.epoch),
    }
    for name, (expected, found) in pairs.items():
        if expected != found:
            yield Finding(
                what="header",
                id=item.id,
                expected=f"{name} {expected}",
                found=f"{name} {found}",
            )


def judge_newest(items: Iterable[Item]) -> Iterator[Finding]:
    """Yield what is wrong with the newest stored revision of each memory, which is in force."""
    for item in items:
        if item.earlier:
            expected = f"revision {item.revision} in force: none is newer"
            yield Finding(what="state", id=item.id, expected=expected, found="an earlier revision")


def judge_state(
    item: Item, stated: StatePromise | None, state: Mapping[str, Any] | None
) -> Iterator[Finding]:
    """Yield where a row differs from the newest signed state of its memory, or of a new one."""
    said, due = item.state, dict(NEW_STATE if state is None else state)
    for unlisted in ("merged", "default_life"):  # of a link and of an end, in no inventory
        due.pop(unlisted, None)
    if stated is not None and stated.refreshed:
        due["stale"] = False
    if said != due:
        differing = sorted(name for name in said if said[name] != due.get(name))
        yield Finding(
            what="state",
            id=item.id,
            seq=None if stated is None else stated.seq,
            expected=", ".join(f"{name} {due.get(name)}" for name in differing),
            found=", ".join(f"{name} {said[name]}" for name in differing),
        )


def judge_grants(promises: Promises, names: Mapping[int, str]) -> Iterator[Finding]:
    """Yield the differences between the grants that receipts name and those present, by serial."""
    if promises.serial != max(names, default=0):
        expected, found = f"serial {promises.serial}", f"serial {max(names, default=0)}"
        yield Finding(what="grants", expected=expected, found=found)
    for serial, name in promises.grants.items():
        if names.get(serial, name) != name:
            found = f"serial {serial}, object {names[serial]}"
            yield Finding(what="grants", expected=f"object {name}", found=found)


def contradictions(checkpoints: Sequence[Checkpoint]) -> Iterator[Finding]:
    """Checkpoints of one account that cannot both be true, whatever the relayer shows now."""
    by_seq: dict[int, Checkpoint] = {}
    for one in checkpoints:
        other = by_seq.setdefault(one.seq, one)
        if other.head != one.head:
            yield Finding(
                what="fork",
                seq=one.seq,
                expected=f"head {other.head.hex()}",
                found=f"head {one.head.hex()}: the relayer signed two histories",
            )


@dataclass
class Landmarks:
    """Points of the chain that were seen before: whoever rewrites history misses one.

    `heads` are by sequence number, each with where it was seen.
    """

    heads: dict[int, list[tuple[bytes, str]]] = field(default_factory=dict)

    def add(self, seq: int, head: bytes, where: str) -> None:
        """Expect a receipt with this number and hash."""
        if seq > 0:
            self.heads.setdefault(seq, []).append((head, where))

    def begin(self, start: Checkpoint) -> Iterator[Finding]:
        """Leave out what lies before a checkpoint; what was seen there and is not so in it."""
        self.heads = {seq: heads for seq, heads in self.heads.items() if seq >= start.seq}
        yield from self._compare(start.seq, start.head)

    def pass_by(self, receipt: Receipt, *, begins: bool) -> Iterator[Finding]:
        """Yield what was seen before and is not so in the chain, up to this receipt."""
        yield from self._compare(receipt.seq, receipt.digest)
        if begins and receipt.op == "rebuild":
            yield from self._before(receipt)

    def _compare(self, seq: int, found: bytes) -> Iterator[Finding]:
        for head, where in self.heads.pop(seq, ()):
            if head != found:
                yield Finding(
                    what="fork",
                    seq=seq,
                    expected=f"{head.hex()} ({where})",
                    found=f"{found.hex()}: this history is another one",
                )

    def _before(self, receipt: Receipt) -> Iterator[Finding]:
        """Yield what was seen before an account was rebuilt; its last receipt may be linked."""
        for seq in sorted(seq for seq in self.heads if seq < receipt.seq):
            for head, where in self.heads.pop(seq):
                if (seq, head) != (receipt.seq - 1, receipt.prev):
                    yield Finding(
                        what="rebuilt",
                        seq=seq,
                        expected=f"{head.hex()} ({where})",
                        found=f"a history that begins anew at {receipt.seq}",
                    )

    def check_left(self, seq: int) -> Iterator[Finding]:
        """Yield what was seen and lies beyond the chain's end."""
        for missed in sorted(n for n in self.heads if n > seq):
            for head, where in self.heads[missed]:
                yield Finding(
                    what="rollback",
                    seq=missed,
                    expected=f"{head.hex()} ({where})",
                    found=f"a history that ends at {seq}",
                )


@dataclass(frozen=True, kw_only=True)
class Verification(Answer):
    """The result of a verification: what was checked, and what does not hold.

    `unchecked` names what this key may not see; `unproven` counts revisions that are stored and
    whose receipts lie before what could be followed.
    """

    ok: bool
    account_id: str
    relayer_key: str
    seq: int
    head: str
    receipts: int
    grants: int
    blobs: int
    opened: int
    unproven: int
    notes: tuple[str, ...]
    unchecked: tuple[str, ...]
    findings: tuple[Finding, ...]


def distinct(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each finding once, in order."""
    return tuple(dict.fromkeys(replace(finding) for finding in findings))
