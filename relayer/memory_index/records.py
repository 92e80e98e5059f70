"""Sealed index records of a page, opened into what rows would have said.

Not here: the format (`sealed.index_record`), reading pages (`database.memory_index`). Pure.

- What a record holds stays hashed and turned in memory, too; only its seal is taken off.
- One that a key at hand does not open is left out: of another key's epoch, it may be opened later;
  an altered one is said in the log, and counts as a memory without words or vectors.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from relayer.database.index_pages import Ints, MemoryRows, Page, Vectors
from relayer.database.vectors import LOST, NO_VECTOR
from relayer.sealed.index_record import OpenedRecords, open_records
from relayer.sealed.keys import AccountId, NamespaceKey

log = logging.getLogger("relayer.memory_index")

_LENGTH_MAX = np.iinfo(np.int16).max  # words that a row may count


@dataclass(frozen=True)
class OpenedPages:
    """Pages with what their records hold; `closed`: epoch → memories whose key was not at hand."""

    pages: Sequence[Page]
    closed: Mapping[int, set[int]]

    def join(self, other: "OpenedPages") -> "OpenedPages":
        """Return these pages and others."""
        closed = {epoch: set(seqs) for epoch, seqs in self.closed.items()}
        for epoch, seqs in other.closed.items():
            closed.setdefault(epoch, set()).update(seqs)
        return OpenedPages([*self.pages, *other.pages], closed)


def open_pages(
    pages: Sequence[Page], account: AccountId, keys: Sequence[NamespaceKey]
) -> OpenedPages:
    """Open the records of these pages with a namespace's keys."""
    by_epoch = {key.epoch: key for key in keys}
    closed: dict[int, set[int]] = {}
    opened = [_open_page(page, account, by_epoch, closed) for page in pages]
    return OpenedPages(opened, closed)


def has_records(pages: Sequence[Page]) -> bool:
    """Return true if any memory of these pages has a sealed record."""
    return any(page.memories.record_sizes.any() for page in pages)


def _open_page(
    page: Page,
    account: AccountId,
    keys: Mapping[int, NamespaceKey],
    closed: dict[int, set[int]],
) -> Page:
    rows = page.memories
    epochs = np.where(rows.record_sizes > 0, rows.epoch, 0)
    for epoch in sorted({*epochs.tolist()} - {0}):
        its = np.flatnonzero(epochs == epoch)
        if (key := keys.get(epoch)) is None:
            closed.setdefault(epoch, set()).update(rows.seq[its].tolist())
        else:
            page = _open(page, its, key, account)
    return page


def _open(page: Page, its: Ints, key: NamespaceKey, account: AccountId) -> Page:
    """Return the page with what these records of one epoch hold."""
    rows = page.memories
    found = open_records(
        key,
        account,
        rows.records,
        rows.record_begins[its],
        rows.record_sizes[its],
        rows.memory_id[its],
        rows.revision[its],
    )
    if (altered := len(its) - len(found.which)) > 0:
        extra = {"event": "resident.altered", "records": altered}
        log.error("index records are altered", extra=extra)
    at = its[found.which]
    seqs = rows.seq[at]
    lengths = found.length.clip(max=_LENGTH_MAX)
    return replace(
        page,
        memories=_described(rows, at, found, lengths),
        tokens=np.concatenate([page.tokens, found.tokens]),
        seqs=np.concatenate([page.seqs, seqs.repeat(found.token_counts)]),
        frequencies=np.concatenate([page.frequencies, found.frequencies.astype(np.int16)]),
        lengths=np.concatenate([page.lengths, lengths.repeat(found.token_counts).astype(np.int16)]),
        vectors={**page.vectors, **dict(_vectors(page, at, found, key.epoch))},
    )


def _described(rows: MemoryRows, at: Ints, found: OpenedRecords, lengths: Ints) -> MemoryRows:
    """Return the rows with what these records say in place of a masked source and no words."""
    source, is_sourced, length = rows.source.copy(), rows.is_sourced.copy(), rows.length.copy()
    source[at] = found.source
    is_sourced[at] = found.is_sourced
    length[at] = np.where(rows.is_counted[at], lengths, 0)
    return replace(rows, source=source, is_sourced=is_sourced, length=length)


def _vectors(
    page: Page, at: Ints, found: OpenedRecords, epoch: int
) -> Iterator[tuple[tuple[int, str], tuple[Ints, Vectors]]]:
    """Yield numbers and vectors of one epoch by model: those of rows before those opened."""
    rows, has_any = page.memories, found.vector_counts > 0
    for place, model in enumerate(rows.models):
        if model in ("", NO_VECTOR, LOST):
            continue
        its = np.flatnonzero((rows.model[at] == place) & has_any)
        if not len(its):
            continue
        # Others are what whoever forges a record may have.
        its = its[found.dims[its] == found.dims[its[0]]]
        numbers = rows.seq[at[its]].repeat(found.vector_counts[its])
        vectors: Vectors = found.vectors_of(its)
        before = page.vectors.get((epoch, model))
        if before is not None and before[1].shape[1] == vectors.shape[1]:
            numbers = np.concatenate([before[0], numbers])
            vectors = np.concatenate([before[1].astype(np.float32), vectors.astype(np.float32)])
        yield (epoch, model), (numbers, vectors)
