"""An archive that was read to its end: what is in it, opened, or brought to another relayer.

It does not own the bytes (`sealed/archive.py`), requests (`rows.py`, `operations/archives.py`),
writing (`archive_writer.py`) or what people are told (`commands/transfer.py`).

- A file is believed after it was read to its end once: before that nothing of it is sent or shown.
- It may be larger than memory: only ids of what changed or was erased are held, and a portion of
  what is there in another revision.
- Its receipts are followed, too: what they say was signed by the relayer that it comes from.

Source: SPEC.md §17.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from memrelay.answers import Answer, read_json_object
from memrelay.archive_writer import KINDS, Losses, check_record, list_blob_names, names_of
from memrelay.errors import (
    BadRequest,
    ConfigError,
    Invalid,
    NotAuthenticated,
    NotGranted,
    ServerError,
    UntrustedGrant,
    UntrustedRelayer,
)
from memrelay.evidence import Evidence
from memrelay.models import Memory
from memrelay.rows import bare, batches, bring, measure, memory_of, pages_of, whole_batches
from memrelay.sealed.archive import (
    MAGIC,
    ChunkKey,
    Header,
    Record,
    open_box,
    open_chunks,
    read_head,
    read_records,
)
from memrelay.sealed.envelope import Address, blob_id, open_envelope
from memrelay.sealed.keys import Identity, account_id_of
from memrelay.sealed.ledger import Keyring, Ledger
from memrelay.sealed.objects import from_base64, integer, list_of, text_of
from memrelay.sealed.receipts import Receipt
from memrelay.sync_client import SyncMemoryClient

Progress = Callable[[int], None]

_HELD_BYTES = 1 << 26  # of memories with all their revisions, at once; one of them at least


@dataclass(frozen=True)
class Archive:
    """An archive that was read to its end and holds: what is in it beside its rows.

    Attributes:
        grants: records, in order of their serials.
        namespaces: records by name.
        tombstones: records by id.
        taken: ids and blobs of turns whose facts were taken while it was written.
        latest: of rows that are there more than once, which one counts: id → its number.
        lost: how many rows have no blob, and cannot be brought anywhere.
    """

    path: Path
    header: Header
    chunks: ChunkKey
    account: Record
    grants: Sequence[Record]
    ledger: Ledger
    namespaces: Mapping[str, Record]
    tombstones: Mapping[str, Record]
    taken: frozenset[str]
    latest: Mapping[str, int]
    counts: Mapping[str, int]
    lost: int

    def rows(self) -> Iterator[Record]:
        """Yield the memories, earlier revisions and turns that count, in the archive's order."""
        return (row for row in self.all_rows() if row["blob"] is not None)

    def all_rows(self) -> Iterator[Record]:
        """Yield those rows and, without a blob, what the relayer lost of them."""
        stones = self.tombstones
        gone = self.taken.union(stones, *map(list_blob_names, stones.values()))
        for number, record in enumerate(_records(self.path, self.chunks)):
            if record["record"] not in {"memory", "episode"} or names_of(record) & gone:
                continue
            if self.latest.get(record["id"], number) == number:
                yield record


def is_archive(path: Path) -> bool:
    """Return whether a file begins like an archive."""
    try:
        if not path.is_file():  # whoever opens a named pipe waits for another end of it
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def open_archive(path: Path, identity: Identity, account: bytes) -> Archive:
    """Return an archive of this account after reading it to its end.

    Raises:
        ConfigError: it cannot be read.
        Invalid: it is altered, cut, of another account, for other keys, or not made by an owner.
    """
    try:
        with path.open("rb") as file:
            header = read_head(file)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    if header.account != account:
        raise Invalid("account", "The archive is another account's.")
    chunks = ChunkKey(header.archive, open_box(header, identity))
    evidence = Evidence(account=account, relayer=header.relayer)
    found: dict[str, list[Record]] = {kind: [] for kind in KINDS.values()}
    latest: dict[str, int] = {}
    taken: set[str] = set()
    counts: Counter[str] = Counter()
    losses = Losses()
    last: Record = {"record": "end", "counts": {}}
    for number, last in enumerate(_records(path, chunks)):
        kind = last["record"]
        if kind not in {"mark", "end"}:
            counts[kind] += 1
        receipt = _follow(evidence, last)
        if receipt is not None and receipt.seq > found["account"][0]["receipt_seq"]:
            taken |= _list_taken_turns(receipt)
        losses.take(last)
        if kind in {"memory", "episode"}:
            _check_name(last)
            if last.get("again"):
                latest[last["id"]] = number
        elif kind != "receipt" and kind in found:
            found[kind].append(last)
    if last["record"] != "end" or last["counts"] != dict(counts) or len(found["account"]) != 1:
        raise Invalid("record", "The archive is not whole.")
    evidence.check_end()
    return Archive(
        path=path,
        header=header,
        chunks=chunks,
        account=found["account"][0],
        grants=found["grant"],
        ledger=_ledger(header, found["grant"]),
        namespaces={record["name"]: record for record in found["namespace"]},
        tombstones={record["id"]: record for record in found["tombstone"]},
        taken=frozenset(taken),
        latest=latest,
        counts=dict(counts),
        lost=len(losses),
    )


def _records(path: Path, chunks: ChunkKey) -> Iterator[Record]:
    with path.open("rb") as file:
        read_head(file)
        for record in read_records(open_chunks(file, chunks)):
            check_record(record)
            yield record


def _follow(evidence: Evidence, record: Record) -> Receipt | None:
    try:
        return evidence.take(record)
    except UntrustedRelayer as error:
        raise Invalid(error.code, f"The archive's receipts do not hold: {error}") from error


def _list_taken_turns(receipt: Receipt) -> set[str]:
    """The turns that are gone since their facts were taken, which are there or erased: taken once
    more where they arrive, they would bring back what was forgotten."""
    turns = [item for item in receipt.items if receipt.op == "analyze" and item[1] == 0]
    return {name for item, _, blob in turns for name in (item, blob)}


def _check_name(record: Record) -> None:
    text = record["blob"]
    if text is not None and blob_id(from_base64(text, "blob")) != record["blob_id"]:
        raise Invalid("name", "A blob of the archive does not have the name that its row says.")


def _ledger(header: Header, grants: Sequence[Record]) -> Ledger:
    """The account's grants, which must say that the archive's signer owned it."""
    objects = [(_grant_kind(record), from_base64(record["object"], "grant")) for record in grants]
    named = [from_base64(r["succession"], "object") for r in grants if r.get("succession")]
    ledger = Ledger.of(header.account, objects, named)
    held = ledger.list_grants_to(header.signer, header.created_ms)
    if not ledger.complete or all(grant.role != "owner" for grant in held):
        raise UntrustedGrant("signer", "The archive was not made by an owner of the account.")
    return ledger


def _grant_kind(record: Record) -> str:
    return "grant" if b'"grant":' in from_base64(record["object"], "grant") else "revoke"


def import_archive(
    client: SyncMemoryClient, archive: Archive, progress: Progress, *, token: str | None = None
) -> Counter[str]:
    """Bring an archive to the client's relayer; return how many rows fared how, the `lost` too.

    Doing it again brings what is missing and changes nothing else.

    Raises:
        NotGranted: the account is not there yet, and this key is not its founder's.
    """
    first = archive.grants[0]
    if account_id_of(client.settings.identity.public_key) == archive.header.account:
        client.found_again(
            grant=from_base64(first["object"], "grant"),
            label=text_of(archive.account["label"]),
            token=token,
        )
    tally: Counter[str] = Counter()
    try:
        client.import_page({"account": bare(archive.account)})
    except NotAuthenticated as error:
        raise NotGranted(
            "The account is not there, or not with this key: bring it with its founder's key first."
        ) from error
    for page in _pages(archive.grants):
        client.import_page({"grants": page})
    for page in _pages(_own_namespaces(archive, client.settings.identity)):
        client.import_page({"namespaces": page})
    for page in _pages(list(archive.tombstones.values())):
        _bring_tombstones(client, page)
    differing: dict[str, str] = {}  # a row → the memory that it is a revision of
    for batch in batches(_memories_first(archive)):
        outcomes = bring(client, batch)
        tally.update(outcomes.values())
        memories = [record for record in batch if record["record"] == "memory"]
        differing |= {r["id"]: memory_of(r) for r in memories if outcomes[r["id"]] == "differs"}
        progress(sum(tally.values()))
    settled: dict[str, str] = {}
    for batch in whole_batches(_whole(archive, frozenset(differing.values()))):
        for row, status in bring(client, batch).items():
            if row in differing and settled.get(row) != "imported":
                settled[row] = status
    tally["differs"] -= len(settled)
    tally.update(settled.values())
    tally["lost"] = archive.lost
    return +tally


def _pages(records: Sequence[Record]) -> Iterator[list[Record]]:
    for page in pages_of(records):
        yield [bare(record) for record in page]


def _bring_tombstones(client: SyncMemoryClient, stones: Sequence[Record]) -> None:
    """Say what is erased; to a relayer from before turns were told to be `taken`, without these."""
    try:
        client.import_page({"tombstones": stones})
    except BadRequest as error:
        erased = [stone for stone in stones if not stone.get("taken")]
        if error.code != "request.invalid" or len(erased) == len(stones):
            raise
        client.import_page({"tombstones": erased})


def _own_namespaces(archive: Archive, identity: Identity) -> list[Record]:
    """Return the namespaces, without key ids that are not those of the account's own keys: such a
    one, invented by the former relayer, would shut its namespace at the next one for good."""
    keyring = archive.ledger.keyring(identity, archive.header.created_ms)
    found = [r | {"keys": list_own_keys(keyring, r)} for r in archive.namespaces.values()]
    return [record for record in found if record["keys"]]


def list_own_keys(keyring: Keyring, namespace: Record) -> list[Record]:
    """Return the ids of a namespace's keys that this key has, or has no key to compare with."""
    try:
        held = keyring.namespace_keys(text_of(namespace["name"]))
    except NotGranted:
        held = ()
    own = {key.epoch: key.key_id.hex() for key in held}
    keys = list_of(namespace.get("keys"))
    if not all(isinstance(key, Mapping) for key in keys):
        raise Invalid("record", "A namespace of the archive has no good keys.")
    named = [(key, integer(key.get("epoch")), key.get("key_id")) for key in keys]
    return [key for key, epoch, key_id in named if own.get(epoch, key_id) == key_id]


def _memories_first(archive: Archive) -> Iterator[Record]:
    """Yield the rows that count, earlier revisions last: none is taken in without its memory."""
    yield from (row for row in archive.rows() if not row.get("revision_of"))
    yield from (row for row in archive.rows() if row.get("revision_of"))


def _whole(archive: Archive, memories: frozenset[str]) -> Iterator[list[Record]]:
    """Yield each of these memories with its earlier revisions behind it, from the oldest one on.

    In as many passes through the archive as they take of memory together.
    """
    sizes: Counter[str] = Counter()
    for row in archive.rows():
        if memory_of(row) in memories:
            sizes[memory_of(row)] += measure(row)
    for portion in _portions(sizes):
        groups: dict[str, list[Record]] = {memory: [] for memory in portion}
        for row in archive.rows():
            if memory_of(row) in groups:
                groups[memory_of(row)].append(row)
        for rows in groups.values():
            yield sorted(rows, key=lambda row: (row["revision_of"] is not None, row["revision"]))


def _portions(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    portion: list[str] = []
    held = 0
    for memory, size in sizes.items():
        if portion and held + size > _HELD_BYTES:
            yield portion
            portion, held = [], 0
        portion.append(memory)
        held += size
    if portion:
        yield portion


def open_memories(archive: Archive, identity: Identity, at_ms: int) -> Iterator[Memory]:
    """Yield the memories that could be recalled, opened with an owner's key alone.

    As in a list, what another client sealed has no text; what the relayer lost is `failed`, too.

    Raises:
        NotGranted: the key held nothing any more when the archive was made.
        Invalid: a memory does not open, or is none.
    """
    keyring = archive.ledger.keyring(identity, at_ms)
    for row in archive.all_rows():
        if row["record"] != "memory" or row["revision_of"] is not None:
            continue
        try:
            if not _is_recalled(row, at_ms):
                continue
            if row["blob"] is None:
                yield _make_unread(row, "failed")
            elif row["format"] != "sealed":
                yield _make_unread(row, None)
            else:
                yield _open_memory(archive.header.account, keyring, row)
        except (ServerError, ValueError) as error:
            raise Invalid("record", "A memory of the archive is none.") from error


@dataclass(frozen=True, kw_only=True)
class _SealedPart(Answer):
    """The sealed part of a memory."""

    text: str
    tags: tuple[str, ...]
    source: str | None
    metadata: Mapping[str, Any] | None


def _is_recalled(row: Record, at_ms: int) -> bool:
    hidden = row["superseded_at"] is not None or row["review"] in {"pending", "rejected"}
    expires = row["expires_at"]
    expired = expires is not None and datetime.fromisoformat(expires).timestamp() * 1000 <= at_ms
    return not hidden and not expired


def _make_unread(row: Record, status: str | None) -> Memory:
    return Memory(id=row["id"], namespace=row["namespace"], text=None, status=status)


def _open_memory(account: bytes, keyring: Keyring, row: Record) -> Memory:
    keys = {key.epoch: key for key in keyring.namespace_keys(row["namespace"])}
    if row["epoch"] not in keys:
        raise NotGranted("This key does not hold an epoch that a memory was sealed in.")
    address = Address(row["type"], account, UUID(row["id"]), row["revision"])
    data = open_envelope(address, keys[row["epoch"]], from_base64(row["blob"], "blob"))
    sealed = _SealedPart.from_json(read_json_object(data))
    shown = {"id", "namespace", "kind", "event_time", "importance", "confidence", "writer"}
    shown |= {"created_at", "expires_at", "revision", "seq"} & row.keys()
    return Memory.from_json({**{name: row.get(name) for name in shown}, **sealed.to_json()})
