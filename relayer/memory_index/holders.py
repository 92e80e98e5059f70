"""The memories of loaded namespaces that have given tokens.

Not here: loading them (`sealed.py`), ranking by words (`evidence.py`), the same by statements
(`database.postings`). Pure.
"""

from collections.abc import Collection, Sequence

import numpy as np

from relayer.memory_index.namespace import Bools, Ints, LoadedNamespace


def find_holders(namespace: LoadedNamespace, tokens: Sequence[Collection[int]]) -> Ints:
    """Return numbers of memories, ascending, that have one token of each of these choices."""
    return namespace.memories.seq[_have_all(namespace, tokens)]


def find_alike(namespace: LoadedNamespace, epoch: int, tokens: Collection[int], among: int) -> Ints:
    """Return numbers of the newest memories, newest first, that have all of these tokens.

    They are sealed in this epoch, and of at most `among` that have the rarest; none where one of
    the tokens is nowhere.
    """
    wanted = np.array(sorted(tokens), np.int64)
    counts = [sum(part.count(wanted[n : n + 1]) for part in namespace.postings)
              for n in range(len(wanted))]  # fmt: skip
    if not counts or not min(counts):
        return np.zeros(0, np.int64)
    rarest = int(wanted[int(np.argmin(counts))])
    first = np.flatnonzero(_have_all(namespace, [[rarest]]))[-among:]
    looked_at = np.zeros(len(namespace.memories), bool)
    looked_at[first] = True
    looked_at &= _have_all(namespace, [[token] for token in wanted.tolist()])
    looked_at &= namespace.memories.epoch == epoch
    return namespace.memories.seq[looked_at][::-1]


def _have_all(namespace: LoadedNamespace, tokens: Sequence[Collection[int]]) -> Bools:
    found = np.ones(len(namespace.memories), bool)
    for choice in tokens:
        has = np.zeros(len(found), bool)
        for part in namespace.postings:
            has[part.holders(np.array(sorted(choice), np.int64))] = True
        found &= has
    return found
