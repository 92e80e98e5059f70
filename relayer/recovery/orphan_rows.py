"""A blob without rows that was opened: which rows it is to have, by what it and the journal say.

Not here: finding and opening it (`orphans.py`, `restore.py`), writing rows (`memories/writer.py`).
Pure.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from relayer.clock import from_claimed_ms, from_ms
from relayer.database import memories as rows
from relayer.database.states import CONTRADICTS, MERGED, SOURCE, TURN, Link
from relayer.memories.sealed_drafts import fingerprint_of, new_memory
from relayer.record import (
    AGAINST,
    SOURCES,
    Draft,
    State,
    first_stored_at,
    is_kept,
    revision_row_id,
)
from relayer.sealed import envelope
from relayer.sealed.keys import Namespace, NamespaceKey, PublicKey
from relayer.sealed.states import SignedState
from relayer.tenants.namespaces import NamespaceEntry


@dataclass(frozen=True)
class OpenedBlob:
    """A blob, opened, and the namespace that it belongs to."""

    header: envelope.Header
    key: NamespaceKey
    entry: NamespaceEntry
    blob: bytes = field(repr=False)
    record: bytes = field(repr=False)
    draft: Draft = field(repr=False)
    writer: PublicKey

    @property
    def names(self) -> dict[int, Namespace]:
        """Return its namespace by number."""
        return {self.entry.namespace_id: self.key.namespace}


def memory_of(
    found: OpenedBlob, said: SignedState | None, replaced_ms: int | None
) -> rows.NewMemory:
    """Return the rows of a memory, or of its earlier revision that was replaced at that time."""
    address, stored_at = found.header.address, from_claimed_ms(found.header.created_ms)
    draft = found.draft if said is None else _as_long(found.draft, said, address.revision)
    memory = replace(
        new_memory(
            draft,
            found.key,
            found.entry,
            address=address,
            blob=found.blob,
            writer=found.writer,
            created_at=first_stored_at(found.record) or stored_at,
        ),
        stored_at=stored_at,
    )
    if replaced_ms is not None:
        return replace(
            memory,
            memory_id=revision_row_id(address.memory, address.revision),
            revision_of=address.memory,
            state=_earlier_state(said, address.revision, replaced_ms),
        )
    return memory if said is None else replace(memory, state=_state(said, address.revision))


def episode_of(found: OpenedBlob) -> rows.NewEpisode:
    """Return the row of an episode: kept if its record says so, else waiting for its facts (again).

    Raises:
        CryptoError: not a record.
    """
    return rows.NewEpisode(
        episode_id=found.header.address.memory,
        namespace_id=found.entry.namespace_id,
        epoch=found.key.epoch,
        writer=found.writer,
        blob_id=envelope.blob_hash(envelope.blob_id(found.blob)),
        blob=found.blob,
        fingerprint=fingerprint_of(found.key, found.draft),
        state=rows.KEPT if is_kept(found.record) else rows.PENDING,
        created_at=from_claimed_ms(found.header.created_ms),
    )


def links_of(address: envelope.Address, draft: Draft) -> list[Link]:
    """Return the links to others that a record names, whatever later ones say."""
    links = [Link(address.memory, TURN, draft.turn)] if draft.turn is not None else []
    links += [
        Link(address.memory, relation, other)
        for relation, name in ((CONTRADICTS, AGAINST), (SOURCE, SOURCES))
        if relation != SOURCE or address.type == envelope.SUMMARY or draft.kind == "procedural"
        for other in _ids(draft.metadata.get(name, ""))
    ]
    return links


def merged_with(
    memory: uuid.UUID, said: SignedState | None, others: Sequence[uuid.UUID]
) -> list[Link]:
    """Return links between a memory and those merged into it, or its own successor."""
    links = [Link(memory, MERGED, other) for other in others]
    if said is not None and said.merged and said.superseded_by is not None:
        links.append(Link(said.superseded_by, MERGED, memory))
    return links


def _ids(text: str) -> list[uuid.UUID]:
    """Return the ids in a text of a record; anybody may have written something else there."""
    try:
        return [uuid.UUID(word) for word in text.split()]
    except ValueError:
        return []


def _as_long(draft: Draft, said: SignedState, revision: int) -> Draft:
    """Return a draft that lives until what was said last of this revision."""
    if said.revision != revision:
        return draft
    return replace(
        draft,
        expires_at=from_ms(said.expires_ms),
        has_default_life=said.has_default_life,
    )


def _earlier_state(said: SignedState | None, revision: int, replaced_ms: int) -> State:
    """Return the state of a revision when it was replaced, as far as it is known."""
    known = State() if said is None or said.revision > revision else _state(said, revision)
    return replace(known, superseded_at=from_claimed_ms(replaced_ms), superseded_by=None)


def _state(said: SignedState, revision: int) -> State:
    """Return the last state of a memory; an edit since then made it fresh."""
    return State(
        pinned=said.pinned,
        review=said.review,
        stale=said.stale and said.revision == revision,
        superseded_at=from_ms(said.superseded_ms),
        superseded_by=said.superseded_by,
    )
