"""Keyword index without words: keyed tokens, clipped counts, fingerprints, idempotency marks.

Source: SPEC §8. Not here: which words a text has (`words/`), how hits rank (`fusion`).
"""

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from heapq import merge
from itertools import islice
from typing import Final, Literal

from relayer.normalization import normalize
from relayer.sealed.keys import NamespaceKey, PublicKey
from relayer.sealed.primitives import mac, macs, u32

Field = Literal["w", "t", "s", "m", "p", "d"]
FREQUENCY_MAX: Final = 15
_AT_ONCE: Final = 16_384  # words that one call of Python's own counts or sorts: some milliseconds


def token(key: NamespaceKey, field: Field, term: str) -> int:
    """Return the signed 64-bit token of a term: worthless without the namespace's index key."""
    return tokens(key, field, [term])[0]


def tokens(key: NamespaceKey, field: Field, terms: Iterable[str]) -> list[int]:
    """Return the token of each of these terms: a long text has some hundred thousand."""
    if not (encoded := [term.encode() for term in terms]):
        return []
    digests = macs(8, key.index, "token", field.encode(), each=encoded)
    return [int.from_bytes(digest, "big", signed=True) for digest in digests]


def postings(
    key: NamespaceKey,
    *,
    words: Iterable[str],
    tags: Iterable[str] = (),
    source: str | None = None,
    metadata: Mapping[str, str] | None = None,
    speaker: Iterable[str] = (),
    mentions: Iterable[str] = (),
) -> dict[int, int]:
    """Return token → clipped frequency of everything a memory can be found or filtered by.

    `speaker` has the terms of who said it, `mentions` those of the times that it names.

    In the order of tokens: it says nothing of that of words, and the table's index is filled page
    by page.
    """
    counts, each = Counter[str](), iter(words)
    while some := list(islice(each, _AT_ONCE)):
        counts.update(some)
    found = {
        token: min(n, FREQUENCY_MAX)
        for token, n in zip(tokens(key, "w", counts), counts.values(), strict=True)
    }
    found |= dict.fromkeys(
        filters(key, tags=tags, source=source, metadata=metadata, speaker=speaker), 1
    )
    found |= dict.fromkeys(tokens(key, "d", mentions), 1)
    return {token: found[token] for token in _sort_tokens(found)}


def _sort_tokens(tokens: Collection[int]) -> Iterable[int]:
    """Sort tokens, many of them in several calls: no other thread goes on within one."""
    if len(tokens) <= _AT_ONCE:
        return sorted(tokens)
    each = iter(tokens)
    runs = []
    while some := sorted(islice(each, _AT_ONCE)):
        runs.append(some)
    return merge(*runs)


def filters(
    key: NamespaceKey,
    *,
    tags: Iterable[str] = (),
    source: str | None = None,
    metadata: Mapping[str, str] | None = None,
    speaker: Iterable[str] = (),
) -> list[int]:
    """Return the tokens of what memories are filtered by: tags, source, metadata, speaker."""
    return [
        *tokens(key, "t", tags),
        *(token(key, "s", only) for only in (source,) if only is not None),
        # The zero byte cannot occur in a name.
        *tokens(key, "m", (f"{name}\0{value}" for name, value in (metadata or {}).items())),
        *tokens(key, "p", speaker),
    ]


def mask_source(key: NamespaceKey, memory: uuid.UUID, source: int | None) -> int | None:
    """Return the token of a source masked for one memory, or the token behind the masked one.

    Masked ones of different memories tell nothing of each other; None stays None.
    """
    if source is None:
        return None
    mask = int.from_bytes(mac(8, key.index, "source-mask", memory.bytes), "big", signed=True)
    return source ^ mask


def round_length(words: int) -> int:
    """Return a number of words rounded up to 1, 2, 3, 4, 6, 8, 12, 16, 24, 32 ….

    Exact lengths would tell texts apart.
    """
    if words <= 2:
        return max(1, words)
    power = 1 << (words - 1).bit_length()
    return power * 3 // 4 if words <= power * 3 // 4 else power


def fingerprint(key: NamespaceKey, *, kind: str, event_time_ms: int | None, text: str) -> bytes:
    """Return 16 bytes that are equal for the same fact said twice.

    No case folding: identifiers differ by case.
    """
    return fingerprints(key, kinds=[kind], event_time_ms=event_time_ms, text=text)[0]


def fingerprints(
    key: NamespaceKey, *, kinds: Iterable[str], event_time_ms: int | None, text: str
) -> list[bytes]:
    """Return the fingerprint of a text as each of these kinds."""
    normal = " ".join(normalize("NFC", text).split()).encode()
    when = b"" if event_time_ms is None else str(event_time_ms).encode()
    each = [kind.encode() for kind in kinds]
    return macs(16, key.fingerprint, "fact", each=each, behind=(when, normal))


def idempotency_mark(
    key: NamespaceKey, *, writer: PublicKey, route: str, item: int, caller_key: str
) -> bytes:
    """Return 16 bytes that stand for a caller's idempotency key.

    The key itself is never stored: it may be an unkeyed hash of plaintext.
    """
    return mac(16, key.idempotency, "key", writer, route.encode(), u32(item), caller_key.encode())


def text_mark(key: NamespaceKey, text: str) -> bytes:
    """Return 16 bytes that tell whether an idempotency key came back with another text."""
    return mac(16, key.idempotency, "text", text.encode())
