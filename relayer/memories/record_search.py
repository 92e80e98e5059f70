"""Search for memories that have given tokens, where sealed records say so and no statement can.

Not here: recall (`recall.py`), the index in memory (`relayer.memory_index`).
"""

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from relayer.errors import Unavailable
from relayer.memories.opener import Caller
from relayer.memory_index.holders import find_alike, find_holders
from relayer.memory_index.namespace import LoadedNamespace
from relayer.memory_index.sealed import WHOLE_WAIT_S, SealedNamespaces
from relayer.sealed import index
from relayer.sealed.keys import AccountId, Namespace, NamespaceKey
from relayer.tenants.namespaces import Namespaces

_LOADING: Final = "The index of that namespace is sealed and still being read, or has no room."


class RecordSearch:
    """Looks for tokens in namespaces with sealed records, of one account at a time."""

    def __init__(self, *, namespaces: Namespaces, sealed: SealedNamespaces) -> None:
        self.namespaces = namespaces
        self._sealed = sealed

    async def find_tagged(
        self,
        caller: Caller,
        namespaces: Sequence[Namespace],
        *,
        tags: Sequence[str],
        source: str | None,
    ) -> list[int] | None:
        """Return the numbers of memories with all of these tags, and of this source.

        None where no tag and no source is given, or no namespace has sealed records.

        Raises:
            NotAllowed: a namespace's key is missing.
            Unavailable: `index.loading`, not all of a namespace is loaded.
        """
        if not tags and source is None:
            return None
        found = [await self.namespaces.find_now(caller.access, name) for name in namespaces]
        if not any(entry is not None and entry.has_records for entry in found):
            return None
        keys: Mapping[int, Sequence[NamespaceKey]] = {
            entry.namespace_id: caller.keys.of(name)
            for name, entry in zip(namespaces, found, strict=True)
            if entry is not None
        }
        loaded = await self._sealed.load(caller.access, keys, wait_s=WHOLE_WAIT_S)
        seqs: list[int] = []
        for one, own in zip(_whole(loaded), keys.values(), strict=True):
            filters = [index.filters(key, tags=tags, source=source) for key in own]
            seqs += find_holders(one, list(zip(*filters, strict=True))).tolist()
        return seqs

    async def find_alike(
        self,
        account: AccountId,
        namespace_id: int,
        keys: Sequence[NamespaceKey],
        words: Sequence[tuple[uuid.UUID, int, int]],
        *,
        among: int,
    ) -> list[tuple[uuid.UUID, int]]:
        """Return pairs of a memory and the number of another that has all words of its epoch.

        Args:
            words: (memory, epoch, token).
            among: how many of the newest that have the rarest of them are looked at.

        Raises:
            Unavailable: `index.loading`, not all of the namespace is loaded.
        """
        by_memory: dict[tuple[uuid.UUID, int], set[int]] = defaultdict(set)
        for memory, epoch, token in words:
            by_memory[memory, epoch].add(token)
        [loaded] = _whole(
            [await self._sealed.load_one(account, namespace_id, keys, wait_s=WHOLE_WAIT_S)]
        )
        return [
            (memory, seq)
            for (memory, epoch), tokens in by_memory.items()
            for seq in find_alike(loaded, epoch, tokens, among).tolist()
        ]


def _whole(loaded: Sequence[LoadedNamespace]) -> Sequence[LoadedNamespace]:
    """Return the namespaces: who erases or merges by what is there must not miss any.

    Raises:
        Unavailable: some of a namespace is not loaded.
    """
    if any(one.is_loading for one in loaded):
        raise Unavailable(_LOADING, code="index.loading")
    return loaded
