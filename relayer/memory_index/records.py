"""Sealed index records of a page, opened into what rows would have said.

Not here: the format (`sealed.index_record`), reading pages (`database.memory_index`). Pure.

- What a record holds stays hashed and turned in memory, too; only its seal is taken off.
- One that a key at hand does not open is left out: of another key's epoch, it may be opened later;
  an altered one is said in the log, and counts as a memory without words or vectors.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from relayer.database.memory_index import Page, Vectors
from relayer.database.pool import Row
from relayer.database.vectors import LOST, NO_VECTOR
from relayer.sealed.index_record import IndexRecord, open_record
from relayer.sealed.keys import AccountId, NamespaceKey
from relayer.sealed.primitives import CryptoError

log = logging.getLogger("relayer.memory_index")


@dataclass(frozen=True)
class OpenedPages:
    """Pages with what their records hold; `closed`: epoch → memories whose key was not at hand."""

    pages: Sequence[Page]
    closed: Mapping[int, set[int]]


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
    return any(row["index_record"] is not None for page in pages for row in page.memories)


def _open_page(
    page: Page,
    account: AccountId,
    keys: Mapping[int, NamespaceKey],
    closed: dict[int, set[int]],
) -> Page:
    opened: dict[int, IndexRecord] = {}
    models: dict[tuple[int, str], list[int]] = {}
    for row in page.memories:
        if row["index_record"] is None:
            continue
        if (key := keys.get(row["epoch"])) is None:
            closed.setdefault(row["epoch"], set()).add(row["seq"])
        elif (record := _open(key, account, row)) is not None:
            opened[row["seq"]] = record
            if len(record.vectors) and row["embedding_model"] not in (None, NO_VECTOR, LOST):
                models.setdefault((row["epoch"], row["embedding_model"]), []).append(row["seq"])
    if not opened:
        return page
    records = opened.values()
    counts = [len(record.tokens) for record in records]
    seqs = np.array([*opened], np.int64).repeat(counts)
    lengths = np.array([record.length for record in records], np.int16).repeat(counts)
    frequencies = [record.frequencies.astype(np.int16) for record in records]
    return replace(
        page,
        tokens=np.concatenate([page.tokens, *(record.tokens for record in records)]),
        seqs=np.concatenate([page.seqs, seqs]),
        frequencies=np.concatenate([page.frequencies, *frequencies]),
        lengths=np.concatenate([page.lengths, lengths]),
        vectors={
            **page.vectors,
            **{scope: _vectors(page, scope, its, opened) for scope, its in models.items()},
        },
        opened=opened,
    )


def _open(key: NamespaceKey, account: AccountId, row: Row) -> IndexRecord | None:
    try:
        return open_record(key, account, row["memory_id"], row["revision"], row["index_record"])
    except CryptoError:
        log.error("an index record is altered", extra={"event": "resident.altered"})
        return None


def _vectors(
    page: Page, scope: tuple[int, str], seqs: Sequence[int], opened: Mapping[int, IndexRecord]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Vectors]:
    """Return the numbers and vectors of one epoch and model: those of rows before those opened."""
    dim = opened[seqs[0]].vectors.shape[1]
    seqs = [seq for seq in seqs if opened[seq].vectors.shape[1] == dim]
    counts = [len(opened[seq].vectors) for seq in seqs]
    numbers = np.array(seqs, np.int64).repeat(counts)
    vectors: Vectors = np.concatenate([opened[seq].vectors for seq in seqs])
    if scope in page.vectors and page.vectors[scope][1].shape[1] == dim:
        before, rows = page.vectors[scope]
        numbers = np.concatenate([before, numbers])
        vectors = np.concatenate([rows.astype(np.float32), vectors.astype(np.float32)])
    return numbers, vectors
