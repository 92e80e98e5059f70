"""Writing an account into an archive, page by page, from a relayer that goes on meanwhile.

It does not own the bytes (`sealed/archive.py`), requests (`operations/archives.py`),
reading (`archive_reader.py`) or what people are told (`commands/transfer.py`).

- What is half written stands in `FILE.part`, with marks to go on from; `FILE` is there only when it
  is whole.
- What changed or came during the export, which the receipts since its beginning name, is read
  again; what was erased is read last.

Source: SPEC.md §17.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, BinaryIO

from memrelay.answers import make_malformed_error
from memrelay.errors import BadRequest, ConfigError, Invalid, UntrustedRelayer
from memrelay.evidence import Evidence, PromisedObjects
from memrelay.sealed.archive import (
    CHUNK_BYTES_MAX,
    ChunkKey,
    JoinedChunks,
    Record,
    open_box,
    read_chunks,
    read_head,
    write_head,
    write_record,
)
from memrelay.sealed.keys import account_bytes
from memrelay.sealed.objects import from_base64, uuid_text
from memrelay.sealed.receipts import Receipt
from memrelay.secure_files import hold, sync_folder
from memrelay.sync_client import SyncMemoryClient

Progress = Callable[[int], None]

KINDS = {
    "account": "account",
    "memories": "memory",
    "episodes": "episode",
    "receipts": "receipt",
    "grants": "grant",
    "namespaces": "namespace",
    "tombstones": "tombstone",
}
# The grants and the namespaces come behind the memories, whose keys they name, and what was erased
# at the very end.
_PAGED, _AT_THE_END = ("account", "memories", "episodes", "receipts"), tuple(KINDS)[4:]
_AGAIN = "again"
_Types = type | UnionType
# What is looked at before a relayer judges the rest: a relayer wrote it, so it may be anything.
_READ: Mapping[str, Mapping[str, _Types]] = {
    "account": {
        "relayer": str,
        "succession": list,
        "receipt_seq": int,
        "memory_seq": int,
        "label": str,
    },
    "grant": {"object": str, "succession": str | None},
    "namespace": {"name": str},
    "memory": {
        "id": str,
        "seq": int,
        "revision_of": str | None,
        "type": int,
        "format": str,
        "namespace": str,
        "epoch": int,
        "revision": int,
        "superseded_at": str | None,
        "review": str | None,
        "expires_at": str | None,
        "blob_id": str,
        "blob": str | None,
    },
    "episode": {"id": str, "blob_id": str, "blob": str | None},
    "receipt": {"seq": int, "object": str},
    "tombstone": {"id": str, "blob_ids": list},
    "mark": {"part": str, "cursor": str},
    "end": {"counts": dict},
}
_STORING = frozenset({"remember", "analyze"})
_UNCHANGING = frozenset({"grant", "revoke", "forget", "expire", "close"})
_IDS_AT_ONCE = 10
_VERSION_AT = 14  # in the text of a UUID


def check_record(record: Mapping[str, Any]) -> None:
    """Return if a record of an archive has what it is read by.

    Raises:
        Invalid: `record`, when a member is missing or of another type; `uuid`, when its id is none.
    """
    for name, types in _READ.get(record["record"], {}).items():
        if not isinstance(record.get(name, ...), types):
            raise Invalid("record", f"A record of the archive has no good {name}.")
    if "id" in record:
        uuid_text(record["id"])


@dataclass
class Losses:
    """Rows that have no blob: neither did they come again with it, nor were they erased."""

    _without: dict[str, frozenset[str | None]] = field(default_factory=dict)
    _erased: set[str | None] = field(default_factory=set)

    def take(self, record: Mapping[str, Any]) -> None:
        """Note a record of an archive in its turn."""
        if record["record"] == "tombstone":
            self._erased |= {record["id"], *list_blob_names(record)}
        elif record["record"] in {"memory", "episode"}:
            self._without.pop(record["id"], None)
            if record["blob"] is None:
                self._without[record["id"]] = names_of(record)

    def is_erased(self, *names: str) -> bool:
        """Return whether a tombstone has one of these names."""
        return not self._erased.isdisjoint(names)

    def __len__(self) -> int:
        """Return their number."""
        return sum(not names & self._erased for names in self._without.values())


def names_of(row: Mapping[str, Any]) -> frozenset[str | None]:
    """Return the names, one of which a tombstone has if the row was erased.

    The tombstone of a turn with an id of version 8, from before they were random, has another id:
    it is known by its blob.
    """
    names = {row["id"], row.get("revision_of")}
    if row["record"] == "episode" and row["id"][_VERSION_AT : _VERSION_AT + 1] == "8":
        names.add(row["blob_id"])
    return frozenset(names)


def list_blob_names(tombstone: Mapping[str, Any]) -> set[str]:
    """Return the names of the blobs that were erased with it."""
    return {name for name in tombstone["blob_ids"] if isinstance(name, str)}


@dataclass
class Standing:
    """The progress of an export: where it goes on, and what receipts named since it began."""

    evidence: Evidence
    part: str = _PAGED[0]
    cursor: str = ""
    began_seq: int = 0
    began_memory_seq: int = 0
    receipt_seq: int = 0
    newest: bytes = b""  # the receipt of that number, signed
    changed: dict[str, None] = field(default_factory=dict)  # in order, each once
    new: set[str] = field(default_factory=set)  # stored since, and in the file
    counts: Counter[str] = field(default_factory=Counter)
    losses: Losses = field(default_factory=Losses)
    promised: PromisedObjects = field(default_factory=PromisedObjects)

    def take(self, record: Mapping[str, Any]) -> None:
        """Note a record that is in the file.

        Raises:
            Invalid: it is none.
            UntrustedRelayer: it is a receipt that does not follow those before it.
        """
        check_record(record)
        receipt = self.evidence.take(record)
        kind = record["record"]
        if kind == "mark":
            self.part, self.cursor = record["part"], record["cursor"]
            return
        self.counts[kind] += 1
        self.losses.take(record)
        if kind == "account":
            self.began_seq = record["receipt_seq"]
            self.began_memory_seq = record["memory_seq"]
        if kind in {"memory", "episode"}:
            self.promised.hold(record)
        if kind == "memory" and record["seq"] > self.began_memory_seq and record["blob"]:
            self.new.add(record["id"])
        if receipt is not None:
            self.promised.add(receipt)
            self.receipt_seq = receipt.seq
            self.newest = from_base64(record["object"], "receipt")
            if self.receipt_seq > self.began_seq:
                self.changed |= dict.fromkeys(self._list_changed(receipt))

    def _list_changed(self, receipt: Receipt) -> list[str]:
        """The memories and turns that a receipt says are otherwise than the file has them."""
        if receipt.op in _UNCHANGING:
            return []
        known = self.new if receipt.op in _STORING else frozenset[str]()
        return [item for item, _, _ in receipt.items if item not in known]


class _Writer:
    """Seals records into the chunks of a file."""

    def __init__(self, file: BinaryIO, chunks: ChunkKey, index: int) -> None:
        self._file = file
        self._chunks = chunks
        self._index = index
        self._rest = bytearray()

    def put(self, record: Mapping[str, Any]) -> None:
        """Add a record."""
        self._rest += write_record(record)
        while len(self._rest) > CHUNK_BYTES_MAX:
            self._flush(CHUNK_BYTES_MAX)

    def mark(self, part: str, cursor: str) -> None:
        """Add a mark and end the chunk with it."""
        self.put({"record": "mark", "part": part, "cursor": cursor})
        self._flush(len(self._rest))
        self._file.flush()

    def finish(self, counts: Mapping[str, int]) -> None:
        """Add the last record and make everything durable."""
        self.put({"record": "end", "counts": dict(sorted(counts.items()))})
        self._flush(len(self._rest), last=True)
        self._file.flush()
        os.fsync(self._file.fileno())

    def _flush(self, size: int, *, last: bool = False) -> None:
        self._file.write(self._chunks.seal(self._index, bytes(self._rest[:size]), last=last))
        self._index += 1
        del self._rest[:size]


@dataclass(frozen=True)
class ExportResult:
    """An archive that was written.

    Attributes:
        counts: how many records of each kind it has, and how many rows are `lost`: the relayer has
            no blob for them.
        missing: the ids of what receipts promise, and the relayer neither gave nor says is erased.
    """

    counts: Mapping[str, int]
    missing: Sequence[str]


def export_archive(client: SyncMemoryClient, path: Path, progress: Progress) -> ExportResult:
    """Write the whole account into an archive.

    What an interrupted export left in `FILE.part` is kept, and it goes on from there.

    Raises:
        ConfigError: a file cannot be written, or is the beginning of another export.
        NotGranted: this key does not own the account.
        UntrustedRelayer: the relayer does not stand for the history that it gave, or a receipt in
            it does not hold.
    """
    beginning = path.with_name(f"{path.name}.part")
    with _disk(beginning):
        descriptor = os.open(beginning, os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            busy = f"Another export writes {beginning}."
            hold(descriptor, beginning, otherwise=busy)
            if not _is_at(beginning, descriptor):  # it was finished just now
                raise ConfigError(busy)
            done = _export_into(client, file, beginning, progress)
        os.replace(beginning, path)
        sync_folder(path.parent)
    return done


def _export_into(
    client: SyncMemoryClient, file: BinaryIO, path: Path, progress: Progress
) -> ExportResult:
    account, relayer = account_bytes(client.settings.account_id), client.statement().relayer
    standing = Standing(Evidence(account=account, relayer=relayer))
    if os.fstat(file.fileno()).st_size:
        writer = _resume(client, file, path, standing)
    else:
        begun = client.new_archive()
        file.write(write_head(begun.header))
        writer = _Writer(file, begun.chunks, 0)

    def put(part: str, records: Sequence[Mapping[str, Any]], **more: Any) -> None:
        for record in records:
            entry = {"record": KINDS[part], **record, **more}
            try:
                if "record" in record or "again" in record:
                    raise Invalid("record", "A record says by itself what it is.")
                standing.take(entry)
            except UntrustedRelayer as error:
                raise _unreadable(f"Receipt {record.get('seq')}", error, path) from error
            except Invalid as error:
                raise make_malformed_error(f"a record of {part}") from error
            writer.put(entry)
        progress(standing.counts["memory"])

    while standing.part != _AGAIN:
        records, following = client.export_page(standing.part, cursor=standing.cursor)
        put(standing.part, records)
        if following is None:
            parts = (*_PAGED, _AGAIN)
            standing.part = parts[parts.index(standing.part) + 1]
        standing.cursor = following or ""
        writer.mark(standing.part, standing.cursor)
    _read_again(client, standing, put)
    for part in _AT_THE_END:
        for records in _all_pages(client, part):
            put(part, records)
    try:
        standing.evidence.check_end()
    except Invalid as error:
        raise _unreadable("The history", error, path) from error
    client.check_exported(standing.newest)
    writer.finish(standing.counts)
    counts = {**standing.counts, "lost": len(standing.losses)}
    return ExportResult(counts, standing.promised.list_missing(standing.losses.is_erased))


def _unreadable(what: str, error: Invalid, beginning: Path) -> UntrustedRelayer:
    """Return the error for rows that no reader of an archive would believe."""
    return UntrustedRelayer(
        error.code,
        f"{what} of this account does not hold, and nobody could read an archive with it: {error} "
        "If the relayer was set back, rebuilt or given another key since this export began, remove "
        f"{beginning} and begin anew. "
        "What is readable still comes with `memrelay export --format jsonl --all-namespaces`.",
    )


def _read_again(client: SyncMemoryClient, standing: Standing, put: Callable[..., None]) -> None:
    """Read what changed during the export once more, until nothing does."""
    while True:
        changed, standing.changed = list(standing.changed), {}
        for at in range(0, len(changed), _IDS_AT_ONCE):
            ids = changed[at : at + _IDS_AT_ONCE]
            turns = set(ids)
            for records in _all_pages(client, "memories", ids=ids):
                put("memories", records, again=True)
                turns -= {record["id"] for record in records}
            for records in _turns_again(client, sorted(turns)):
                put("episodes", records, again=True)
        before = standing.receipt_seq
        for records in _all_pages(client, "receipts", cursor=str(before)):
            put("receipts", records)
        if standing.receipt_seq == before:
            return


def _turns_again(
    client: SyncMemoryClient, ids: Sequence[str]
) -> Iterator[Sequence[Mapping[str, Any]]]:
    try:
        yield from _all_pages(client, "episodes", ids=ids) if ids else ()
    except BadRequest as error:
        # A relayer from before it gave turns by id: what then is missing, is named.
        if error.code != "request.invalid":
            raise


def _all_pages(
    client: SyncMemoryClient, part: str, *, cursor: str | None = "", ids: Sequence[str] = ()
) -> Iterator[Sequence[Mapping[str, Any]]]:
    while cursor is not None:
        records, cursor = client.export_page(part, cursor=cursor, ids=ids)
        yield records


def _resume(client: SyncMemoryClient, file: BinaryIO, path: Path, standing: Standing) -> _Writer:
    """Take up an export behind the last mark of what is whole; the rest of the file is cut off."""
    other = ConfigError(f"{path} is the beginning of another export; remove it.")
    try:
        header = read_head(file)
        chunks = ChunkKey(header.archive, open_box(header, client.settings.identity))
    except Invalid as error:
        raise other from error
    account = account_bytes(client.settings.account_id)
    if (header.account, header.relayer) != (account, client.statement().relayer):
        raise other
    end, count = file.tell(), 0
    joined, waiting = JoinedChunks(), list[Record]()
    try:
        for index, sealed in enumerate(read_chunks(file)):
            waiting += joined.add(chunks.open(index, sealed, last=False))
            if joined.is_whole and waiting and waiting[-1]["record"] == "mark":
                for record in waiting:
                    standing.take(record)
                waiting, end, count = [], file.tell(), index + 1
    except UntrustedRelayer as error:  # an earlier release wrote receipts down unseen
        raise other from error
    except Invalid:
        pass  # the end of what is whole
    file.seek(end)
    file.truncate()
    return _Writer(file, chunks, count)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error
