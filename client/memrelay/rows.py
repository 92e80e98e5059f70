"""Sends rows of an account to a relayer, in requests of the size that one takes.

It does not own where the rows come from (`archive_reader.py`, `replication/`) or the request
(`operations/archives.py`).

- A row that the relayer cannot even read is refused by itself: none keeps all others from coming.

Source: SPEC.md §17.2.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from memrelay.errors import BadRequest, TooLarge, UntrustedRelayer
from memrelay.operations.archives import ImportResult
from memrelay.sealed.archive import Record
from memrelay.sealed.objects import text_of, write_json

PAGE_ITEMS_MAX = 100
T = TypeVar("T")

_PAGE_BYTES = 1_500_000  # of a request's 2 MiB; a larger row goes alone
_ROW_BYTES_MAX = 7_500_000  # of the 8 MiB that an import takes


class Destination(Protocol):
    """Whatever takes pages of an import: a client, or one whose receipts are noted."""

    def import_page(self, page: Mapping[str, Any]) -> ImportResult:
        """Return the relayer's answer about a page of what is brought to it."""


def whole_batches(groups: Iterator[list[Record]]) -> Iterator[list[Record]]:
    """Yield requests in which each memory has its earlier revisions with it: a newer revision
    counts where the one that is there comes along with it.

    One with more of them than a request takes comes again with each part of them.
    """
    batch: list[Record] = []
    held = 0
    for group in groups:
        for part in _parts(group):
            size = sum(map(measure, part))
            if batch and (held + size > _PAGE_BYTES or len(batch) + len(part) > PAGE_ITEMS_MAX):
                yield batch
                batch, held = [], 0
            batch += part
            held += size
    if batch:
        yield batch


def _parts(group: list[Record]) -> Iterator[list[Record]]:
    memory, *earlier = group
    if sum(map(measure, group)) > _PAGE_BYTES:
        earlier = [_without_index(row) for row in earlier]
        if measure(memory) + max(map(measure, earlier), default=0) > _ROW_BYTES_MAX:
            memory = _without_index(memory)
    part, held = [memory], measure(memory)
    for row in earlier:
        full = len(part) == PAGE_ITEMS_MAX or held + measure(row) > _ROW_BYTES_MAX
        if full and len(part) > 1:
            yield part
            part, held = [memory], measure(memory)
        part.append(row)
        held += measure(row)
    yield part


def bring(there: Destination, batch: Sequence[Record]) -> dict[str, str]:
    """Send rows; return what became of each, by its id.

    Raises:
        UntrustedRelayer: the relayer answered for other rows.
    """
    try:
        return _send_batch(there, batch)
    except (BadRequest, TooLarge) as error:
        if not error.code.startswith("request."):
            raise
    if len(batch) == 1:
        return {batch[0]["id"]: "refused"}
    half = len(batch) // 2
    return bring(there, batch[:half]) | bring(there, batch[half:])


def _send_batch(there: Destination, batch: Sequence[Record]) -> dict[str, str]:
    rows: dict[str, list[Record]] = {"memories": [], "episodes": []}
    for record in batch:
        rows["memories" if record["record"] == "memory" else "episodes"].append(bare(record))
    outcomes = {row.id: row.status for row in there.import_page(rows).results}
    if outcomes.keys() != {record["id"] for record in batch}:
        raise UntrustedRelayer("results", "The relayer answered for other rows than it got.")
    return outcomes


def memory_of(record: Record) -> str:
    """Return the id of the memory that a row is a revision of, or a turn's own."""
    return text_of(record.get("revision_of") or record["id"])


def pages_of(items: Sequence[T], size: int = PAGE_ITEMS_MAX) -> Iterator[Sequence[T]]:
    """Yield so many of these at a time."""
    for at in range(0, len(items), size):
        yield items[at : at + size]


def bare(record: Record) -> Record:
    """Return a record of an archive as a request has it."""
    return {name: value for name, value in record.items() if name not in {"record", "again"}}


def batches(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Yield records in requests of their size; a row too large goes without its index."""
    batch: list[Record] = []
    held = 0
    for row in records:
        large = measure(row) > _ROW_BYTES_MAX and row["record"] == "memory"
        record = _without_index(row) if large else row
        size = measure(record)
        if batch and (held + size > _PAGE_BYTES or len(batch) == PAGE_ITEMS_MAX):
            yield batch
            batch, held = [], 0
        batch.append(record)
        held += size
    if batch:
        yield batch


def _without_index(row: Record) -> Record:
    """Return a memory's row without vectors and words: they are made again where it arrives, as
    soon as somebody lends its key."""
    bare_row = {name: value for name, value in row.items() if name != "index_record"}
    return bare_row | {"vectors": [], "postings": None}


def measure(record: Record) -> int:
    """Return how many bytes a row takes in a request."""
    return len(write_json(record))
