"""Sealing of a draft into rows: without secrets, in an envelope, under blind words; pure.

Not here: storing them (`writer.py`), formats (`sealed`).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from relayer.clock import to_ms
from relayer.concurrency import offload
from relayer.database import memories as rows
from relayer.errors import TooLarge
from relayer.query.heading import read_heading, speaker_terms
from relayer.query.periods import mention_terms, moment_of_saying
from relayer.record import KINDS, Draft
from relayer.redact import redact
from relayer.sealed import envelope, index
from relayer.sealed.index_record import IndexRecord, seal_record
from relayer.sealed.keys import NamespaceKey, PublicKey
from relayer.settings import Limits
from relayer.tenants.accounts import Access
from relayer.tenants.namespaces import NamespaceEntry
from relayer.words.tokens import words

# Hardly a secret that is known by its shape is longer, but private keys, known cut off as well.
SECRET_CHARACTERS_MAX: Final = 4_096


async def without_secrets(access: Access, text: str) -> tuple[str, dict[str, int]]:
    """Return a text as it may be stored or shown to a model, and how many secrets went, by kind."""
    return await offload(len(text), redact, text) if access.settings.redact else (text, {})


async def beginning_without_secrets(access: Access, text: str, characters: int) -> str:
    """Return the first characters of a text as they may be shown to a model.

    The rest is not looked at.

    A secret that is cut where the looking ends is not recognised: what could be one is not shown.
    """
    begun, _ = await without_secrets(access, text[: characters + SECRET_CHARACTERS_MAX])
    if len(text) > characters + SECRET_CHARACTERS_MAX:
        begun = begun[:-SECRET_CHARACTERS_MAX]
    return begun[:characters]


def new_memory(
    draft: Draft,
    key: NamespaceKey,
    entry: NamespaceEntry,
    *,
    address: envelope.Address,
    blob: bytes,
    writer: PublicKey,
    created_at: datetime,
    stored_at: datetime | None = None,
) -> rows.NewMemory:
    """Return the rows of a sealed draft; `stored_at` if that is not when the memory was made."""
    word_count, source, postings = index_entries(key, draft, created_at)
    record, terms = None, 0
    if entry.sealed_index:
        record = seal_record(
            *(key, address.account, address.memory, address.revision),
            IndexRecord.of(word_count, source, postings),
        )
        source = index.mask_source(key, address.memory, source)
        word_count, postings, terms = 0, {}, len(postings)
    return rows.NewMemory(
        memory_id=address.memory,
        namespace_id=entry.namespace_id,
        epoch=key.epoch,
        revision=address.revision,
        type=address.type,
        format=rows.SEALED,
        writer=writer,
        created_at=created_at,
        kind=draft.kind,
        importance=draft.importance,
        confidence=draft.confidence,
        event_time=draft.event_time,
        expires_at=draft.expires_at,
        has_default_life=draft.has_default_life,
        blob_id=envelope.blob_hash(envelope.blob_id(blob)),
        blob=blob,
        word_count=word_count,
        postings=postings,
        source=source,
        fingerprint=fingerprint_of(key, draft),
        stored_at=stored_at or created_at,
        record=record,
        recorded_terms=terms,
    )


def check_words(memory: rows.NewMemory) -> rows.NewMemory:
    """Return a memory that somebody wants stored, if it has no more words than one may have.

    What is stored already, and comes back, may have more of an earlier release.

    Raises:
        TooLarge: it has.
    """
    if memory.terms > Limits.memory_words_max:
        raise TooLarge(
            f"The text has {memory.terms} different words, a memory may have"
            f" {Limits.memory_words_max}: store it in parts."
        )
    return memory


def fingerprint_of(key: NamespaceKey, draft: Draft) -> bytes:
    """Return the fingerprint that drafts which say the same share under one key."""
    return index.fingerprint(
        key, kind=draft.kind, event_time_ms=to_ms(draft.event_time), text=draft.text
    )


def fingerprints_of(
    epochs: Sequence[NamespaceKey], draft: Draft
) -> tuple[list[bytes], list[bytes]]:
    """Return a draft's fingerprint under each of these keys; and its text's as any other kind."""
    own, other_kinds = list[bytes](), list[bytes]()
    kinds = [draft.kind, *(kind for kind in KINDS if kind != draft.kind)]
    for key in epochs:
        first, *others = index.fingerprints(
            key, kinds=kinds, event_time_ms=to_ms(draft.event_time), text=draft.text
        )
        own.append(first)
        other_kinds += others
    return own, other_kinds


def index_entries(
    key: NamespaceKey, draft: Draft, created_at: datetime
) -> tuple[int, int | None, dict[int, int]]:
    """Return a draft's rounded number of words, its source's token, and token → frequency.

    Frequencies are clipped. Days count from when it was said, or else first stored.
    """
    terms, heading = words(draft.text), read_heading(draft.text)
    body = draft.text[heading.end :]
    moment = moment_of_saying(draft.event_time, draft.said_at or created_at, body)
    postings = index.postings(
        key,
        words=terms,
        tags=draft.tags,
        source=draft.source,
        metadata=draft.metadata,
        speaker=speaker_terms(heading, draft.metadata),
        mentions=mention_terms(body, moment),
    )
    return min(index.round_length(len(terms)), 2**15 - 1), source_token(key, draft), postings


def source_token(key: NamespaceKey, draft: Draft) -> int | None:
    """Return the token of a draft's source, by which memories of one source are told apart."""
    return None if draft.source is None else index.token(key, "s", draft.source)
