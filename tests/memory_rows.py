"""Rows of memories as a database tells them to the index in memory, without a database."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from relayer.database.index_pages import MemoryRows


def memory_rows(seqs: Sequence[int], versions: Sequence[int] = (), **columns: Any) -> MemoryRows:
    """Facts without records of these numbers; `columns` has what is otherwise."""
    count = len(seqs)
    zeros, yes, never = np.zeros(count, np.int64), np.ones(count, bool), np.full(count, np.inf)
    found = MemoryRows(
        seq=np.array(seqs, np.int64),
        version=np.array(versions, np.int64) if len(versions) else zeros + 1,
        epoch=zeros + 1,
        revision=zeros + 1,
        is_sealed=yes,
        is_kept=yes,
        is_counted=yes,
        importance=zeros.astype(np.int8),
        kind=zeros.astype(np.int8),
        writer=zeros,
        source=zeros,
        is_sourced=~yes,
        moment=zeros.astype(np.float64),
        expires=never,
        stored=zeros.astype(np.float64),
        superseded=never,
        blob_id=np.zeros(count, "V32"),
        memory_id=np.zeros(count, "V16"),
        model=zeros,
        record_begins=zeros,
        record_sizes=zeros,
        length=zeros,
    )
    return replace(found, **columns)
