"""Opens rows of both sides, and seals what two edits of one memory come to.

It does not own which edit stands (`merging.py`) or sending rows (`rows.py`).

- What is sealed here is the text of an edit that was sealed before, under the same key: the words,
  vectors and fingerprint of that row belong to it as well.
- The id of what is kept beside is derived: whoever resolves the same conflict again names it alike.

Source: SPEC.md §17.6.
"""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from memrelay.errors import Invalid, NotGranted
from memrelay.replication.merging import Revision, State
from memrelay.sealed.archive import Record
from memrelay.sealed.envelope import Address, blob_id, open_envelope, read_header, seal_envelope
from memrelay.sealed.index_record import rebind_record, rebind_source
from memrelay.sealed.keys import NamespaceKey, mac
from memrelay.sealed.ledger import Keyring
from memrelay.sealed.objects import from_base64, to_base64, write_json

AGAINST = "contradicts"  # the metadata and the link of a memory that speaks against another
_RESOLVES = "resolves"
# What says nothing about the memory: who wrote it where, and what it was made of.
_BESIDE = frozenset({"writer", "created", _RESOLVES})
_METADATA_MAX = 64


@dataclass(frozen=True)
class Opener:
    """Opens rows of an account with the keys of one of its owners."""

    account: bytes
    keyring: Keyring

    def read_revision(self, row: Record) -> Revision:
        """Return what is compared of a row; without a digest where it does not open."""
        record = self.open(row)
        written_ms = _written_ms(row)
        if record is None:
            return Revision(number=row["revision"], blob_id=row["blob_id"], written_ms=written_ms)
        resolves = record.get(_RESOLVES)
        return Revision(
            number=row["revision"],
            blob_id=row["blob_id"],
            written_ms=written_ms,
            digest=_digest(record),
            resolves=frozenset(map(str, resolves if isinstance(resolves, list) else ())),
        )

    def open(self, row: Record) -> dict[str, Any] | None:
        """Return the sealed record of a row, None where it is none of this account's keys."""
        key = self.find_key(row)
        if key is None or row["blob"] is None or row["format"] != "sealed":
            return None
        address = Address(row["type"], self.account, UUID(_memory(row)), row["revision"])
        try:
            record = json.loads(open_envelope(address, key, from_base64(row["blob"], "blob")))
        except (Invalid, ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) else None

    def find_key(self, row: Record) -> NamespaceKey | None:
        """Return the key that a row is sealed under, None where this client does not hold it."""
        try:
            keys = self.keyring.namespace_keys(row["namespace"])
        except (NotGranted, Invalid):
            return None
        return next((key for key in keys if key.epoch == row["epoch"]), None)

    def resolve(self, stands: Record, gives_way: Record, number: int) -> tuple[Record, Record]:
        """Return the rows of a conflict of two edits: the revision that both take, and the memory
        that keeps what the other edit said.

        Raises:
            Invalid: one of them does not open, so that nobody can say what was in conflict.
        """
        kept, lost = self.open(stands), self.open(gives_way)
        if kept is None or lost is None:
            raise Invalid("conflict", "An edit in conflict does not open with this key.")
        written_ms = max(_written_ms(stands), _written_ms(gives_way)) + 1
        digests = [_digest(kept), _digest(lost)]
        revision = self._seal(
            stands,
            {"revision": number, "stored_at": to_moment(written_ms)},
            kept | {"created": kept.get("created", _created_ms(stands)), _RESOLVES: digests},
            written_ms,
        )
        return revision, self._set_aside(gives_way, lost, written_ms)

    def _set_aside(self, row: Record, record: Mapping[str, Any], written_ms: int) -> Record:
        """Return a memory of its own that says what an edit said, and waits for a decision."""
        key = self.find_key(row)
        assert key is not None
        memory = row["id"]
        aside = name_set_aside(key, UUID(memory), _digest(record))
        said = {name: value for name, value in record.items() if name not in ("created", _RESOLVES)}
        metadata = dict(said.get("metadata") or {})
        if len(metadata) < _METADATA_MAX:
            metadata[AGAINST] = memory
        link = {
            "relation": AGAINST,
            "other_id": memory,
            "created_at": to_moment(written_ms),
        }
        fresh = {
            "id": aside,
            "revision": 1,
            "revision_of": None,
            "created_at": to_moment(written_ms),
            "stored_at": to_moment(written_ms),
            "seen_count": 1,
            "last_seen_at": None,
            "links": [*row["links"], link],
        }
        state = State(
            review="contradiction",
            expires_ms=None if row["given_expires_at"] is None else to_ms(row["given_expires_at"]),
            default_life=bool(row.get("default_life")),
        )
        return with_state(self._seal(row, fresh, said | {"metadata": metadata}, written_ms), state)

    def _seal(
        self, row: Record, changes: Record, record: Mapping[str, Any], written_ms: int
    ) -> Record:
        """Return a row under another id or revision, whose bytes say this record."""
        key = self.find_key(row)
        assert key is not None
        before, after = self._address(row), self._address(row | changes)
        sealed = seal_envelope(after, key, write_json(record), created_ms=written_ms)
        index: Record = {}
        if row.get("index_record"):  # it is bound to its revision, and the source to its memory
            data = from_base64(row["index_record"], "index record")
            bound = rebind_record(key, data, before, after)
            source = rebind_source(key, row["source"], before.memory, after.memory)
            index = {"index_record": to_base64(bound), "source": source}
        return row | changes | index | {"blob": to_base64(sealed), "blob_id": blob_id(sealed)}

    def _address(self, row: Record) -> Address:
        return Address(row["type"], self.account, UUID(row["id"]), row["revision"])


def name_set_aside(key: NamespaceKey, memory: UUID, digest: str) -> str:
    """Return the id of the memory that keeps what one edit of a memory said."""
    name = mac(16, key.subkey("fingerprint"), "conflict", memory.bytes, bytes.fromhex(digest))
    return str(UUID(bytes=name, version=4))


def state_of(row: Record) -> State:
    """Return the state that a row of an export says."""
    superseded, given = row["superseded_at"], row["given_expires_at"]
    return State(
        pinned=row["pinned"],
        review=row["review"],
        stale=row["stale"],
        superseded_ms=None if superseded is None else to_ms(superseded),
        superseded_by=row["superseded_by"],
        merged=bool(row.get("merged")),
        expires_ms=None if given is None else to_ms(given),
        default_life=bool(row.get("default_life")),
    )


def with_state(row: Record, state: State) -> Record:
    """Return a row in another state; its life span is that of the namespace where it arrives."""
    given = None if state.expires_ms is None else to_moment(state.expires_ms)
    return row | {
        "pinned": state.pinned,
        "review": state.review,
        "stale": state.stale,
        "superseded_at": None if state.superseded_ms is None else to_moment(state.superseded_ms),
        "superseded_by": state.superseded_by,
        "merged": state.merged,
        "expires_at": given,
        "given_expires_at": given,
        "default_life": state.default_life,
    }


def state_record(memory: str, revision: int, state: State) -> Record:
    """Return a state as an import takes it."""
    row = with_state({}, state)
    del row["given_expires_at"]
    return {"id": memory, "revision": revision, **row}


def name_earlier(memory: str, revision: int) -> str:
    """Return the id of the row that keeps an earlier revision. Source: SPEC.md §13."""
    data = UUID(memory).bytes + revision.to_bytes(4, "big")
    value = int.from_bytes(hashlib.blake2b(data, digest_size=16).digest(), "big")
    value = value & ~(0xF << 76) | 8 << 76  # `UUID` sets no version above 5
    return str(UUID(int=value & ~(0x3 << 62) | 2 << 62))


def make_tombstone(rows: Sequence[Record]) -> Record:
    """Return what is told of the erasure of a memory or turn, of which these rows are there."""
    first = rows[0]
    return {
        "record": "tombstone",
        "id": first.get("revision_of") or first["id"],
        "namespace": first["namespace"],
        "blob_ids": sorted({row["blob_id"] for row in rows}),
        "erased_at": to_moment(round(time.time() * 1000)),
    }


def _digest(record: Mapping[str, Any]) -> str:
    """Return a digest of what a record says; it goes nowhere but into what is sealed."""
    said = {name: value for name, value in record.items() if name not in _BESIDE}
    text = json.dumps(said, sort_keys=True, ensure_ascii=True).encode()
    return hashlib.blake2b(text, digest_size=32).hexdigest()


def _memory(row: Record) -> str:
    return str(row["revision_of"] or row["id"])


def _written_ms(row: Record) -> int:
    try:
        return read_header(from_base64(row["blob"], "blob")).created_ms
    except Invalid:
        return to_ms(row["stored_at"])


def _created_ms(row: Record) -> int:
    return to_ms(row["created_at"])


def to_ms(moment: str) -> int:
    """Return a time of a record in Unix milliseconds."""
    return round(datetime.fromisoformat(moment).timestamp() * 1000)


def to_moment(ms: int) -> str:
    """Return Unix milliseconds as a time of a record."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
