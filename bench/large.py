"""A large namespace in memory against one of a thousand: what its search takes, and what it finds.

Not here: HTTP and opening what is found (`recall.py`), bytes in the database (`index.py`).

- `--rows` memories, 100,000 without. They are put into the index page by page, as read from a
  database. In it are their rows without words, and their vectors, which a search measures.
- A search is all that a recall computes: a run of the model, the evidence, one score of it, and
  exact distances of the best.
- Nearest by meaning are compared with a product of whole vectors; the first ten of a hybrid search
  with those that have distances of whole vectors, though with words found alike.
"""

import statistics
import threading
import time
import uuid
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from bench.figures import Bounds, Figure, Report, compared
from bench.filling import APART, EMBEDDED, FIRST_AT, NOISE, VECTOR_COLUMNS
from bench.running import Account, Scale, Site
from bench.sentences import Questions, sentence
from relayer.clock import utc_now
from relayer.database.index_pages import Counts, Differing, Page
from relayer.database.index_steps import IndexMark
from relayer.database.pool import halfvec
from relayer.database.recall import Evidence, Filters, Scope, Search
from relayer.memories.recall import SPARE_HITS
from relayer.memory_index import evidence
from relayer.memory_index.distances import Measuring, rank_exactly
from relayer.memory_index.namespace import LoadedNamespace, empty, update
from relayer.memory_index.segments import Segment, take_first
from relayer.query.fusion import fuse
from relayer.query.terms import query_terms
from relayer.sealed.index import round_length
from relayer.tenants.accounts import unasked
from relayer.words.tokens import words
from tests.memory_rows import memory_rows

MEMORIES: Final = 100_000
MEMORIES_QUICK: Final = 20_000
SMALL: Final = 1_000
PAGE: Final = 16_000
LIMIT: Final = 10
EACH: Final = 60  # searches of a round
P50: Final = Bounds(must=2.0, aim=1.3)
P95: Final = Bounds(must=3.0, aim=2.0)
FOUND: Final = Bounds(must=0.98, aim=0.99, at_least=True)
ALIKE: Final = Bounds(must=0.95, aim=0.98, at_least=True)
MEGABYTES: Final = Bounds(must=300.0, aim=200.0)
EQUAL: Final = 1e-4  # of two distances: one is as good as the other
NAMESPACE_ID: Final = 1  # of an account's first
_MODEL: Final = "model"
_STORE: Final = """
INSERT INTO memories (account_id, memory_id, namespace_id, epoch, seq, revision, type, format, kind,
    importance, confidence, writer, created_at, blob_id, size_bytes, word_count, tokens,
    index_version, stored_at, embedding_model)
SELECT $1, lpad(to_hex(n), 32, '0')::uuid, $2, 1, n + 1, 1, 1, 'sealed', 'fact', 'standard', 'high',
    sha256('writer'), now(), sha256(n::text::bytea), 656, 10, '{}', 1, now(), $4
FROM generate_series(0, $3::int - 1) AS n
"""
_PART: Final = 0.95  # of searches that take no longer than p95

Floats = npt.NDArray[np.float32]


@dataclass
class _Found:
    seq: int


@dataclass
class _Large:
    """A namespace that was put together, the vectors as they were, and how long that took."""

    account: Account
    loaded: LoadedNamespace
    vectors: npt.NDArray[np.float16]
    spent_s: float
    listed_s: float


async def measure(site: Site, scale: Scale) -> Report:
    """The part's report."""
    count = MEMORIES_QUICK if scale.quick else max(scale.rows or MEMORIES, MEMORIES_QUICK)
    each = 3 if scale.quick else EACH
    own = await site.embedder.embed([sentence(n) for n in range(min(EMBEDDED, count))])
    small, large = await _put_together(site, own, SMALL), await _put_together(site, own, count)
    questions, report = Questions(), Report()
    taken: dict[int, list[list[float]]] = {SMALL: [], count: []}
    for _ in range(scale.rounds):
        for its in (small, large):
            texts = [next(questions) for _ in range(each)]
            taken[len(its.vectors)].append([await _search_ms(site, its, text) for text in texts])
    for label, part, bounds in (("p50", 0.5, P50), ("p95", _PART, P95)):
        ours, theirs = (
            [float(np.quantile(one, part)) for one in taken[size]] for size in (count, SMALL)
        )
        name = f"search among {count:,} in memory, {label}"
        report.figures.append(compared(name, "ms", ours, f"among {SMALL:,}", theirs, bounds))
    found, alike = await _compared(site, large, [next(questions) for _ in range(each)])
    size = large.loaded.size_bytes
    report.figures += [
        Figure(name=f"nearest {LIMIT} of an exact search", value=found, unit="", bounds=FOUND),
        Figure(name=f"first {LIMIT} of a hybrid one", value=alike, unit="", bounds=ALIKE),
        Figure(name=f"process memory of {count:,}", value=size / 1e6, unit="MB", bounds=MEGABYTES),
        Figure(name="process bytes a memory", value=size / count, unit="B"),
        Figure(name="put together a second", value=count / large.spent_s, unit="1/s"),
        Figure(name="put into lists", value=large.listed_s, unit="s"),
    ]
    return report


async def _put_together(site: Site, own: Floats, count: int) -> _Large:
    loaded, spent_s = empty(NAMESPACE_ID), 0.0
    vectors = np.concatenate(
        [_vectors(own, range(at, min(at + PAGE, count))) for at in range(0, count, PAGE)]
    )
    for at in range(0, count, PAGE):
        numbers = range(at, min(at + PAGE, count))
        page = _page(numbers, vectors[numbers.start : numbers.stop])
        now = Differing(IndexMark(b"", 1), Counts(numbers.stop, 0), np.array(numbers) + 1)
        began = time.perf_counter()
        loaded = update(loaded, now, [page])
        spent_s += time.perf_counter() - began
    began, passages = time.perf_counter(), loaded.passages[1, _MODEL]
    if passages.wants_lists:
        passages.list_maker(threading.Event())()
    listed_s = time.perf_counter() - began
    return _Large(await _store(site, vectors), loaded, vectors, spent_s, listed_s)


async def _store(site: Site, vectors: npt.NDArray[np.float16]) -> Account:
    """A new account with rows of memories that have these vectors."""
    account, count = await site.new_account(), len(vectors)
    filler = unasked(account.id, account.founder.public_key, utc_now())
    await site.storage.namespaces.ensure(filler, account.key("large"), by=None)
    async with site.connection() as connection:
        await connection.execute(_STORE, account.id, NAMESPACE_ID, count, _MODEL)
        for at in range(0, count, PAGE):
            records = [
                (account.id, uuid.UUID(int=n), 0, NAMESPACE_ID, 1, _MODEL, halfvec(vectors[n]))
                for n in range(at, min(at + PAGE, count))
            ]
            await connection.copy_records_to_table(
                "vectors", records=records, columns=VECTOR_COLUMNS
            )
        await connection.execute("ANALYZE memories, vectors")
    return account


def _vectors(own: Floats, numbers: range) -> npt.NDArray[np.float16]:
    """As `bench.filling` makes them."""
    found = own[np.array(numbers) % len(own)]
    noise = np.random.default_rng(numbers.start).standard_normal(found.shape, np.float32)
    noise *= NOISE / np.linalg.norm(noise, axis=1, keepdims=True)
    is_near = (np.array(numbers) >= len(own))[:, None]
    return np.asarray((found + noise * is_near) @ _turn(found.shape[1]), np.float16)


@cache
def _turn(dim: int) -> Floats:
    """A turn such as every namespace has its own of."""
    numbers = np.random.default_rng(0).standard_normal((dim, dim))
    return np.asarray(np.linalg.qr(numbers)[0], np.float32)


def _page(numbers: range, vectors: npt.NDArray[np.float16]) -> Page:
    """Memories as a database pages them."""
    counted = [_counted(words(sentence(n))) for n in numbers]
    seqs = np.array(numbers) + 1
    every = [len(its) for its in counted]
    lengths = np.array([round_length(sum(its.values())) for its in counted], np.int16)
    moments = FIRST_AT.timestamp() + APART.total_seconds() * np.array(numbers)
    return Page(
        memories=memory_rows(
            seqs.tolist(),
            (1 + np.array(numbers) // PAGE).tolist(),
            moment=moments,
            stored=moments,
            blob_id=np.array([n.to_bytes(32, "big") for n in numbers], "V32"),
        ),
        vectors={(1, _MODEL): (seqs, vectors)},
        tokens=np.array([token for its in counted for token in its], np.int64),
        seqs=seqs.repeat(every),
        frequencies=np.array([times for its in counted for times in its.values()], np.int16),
        lengths=lengths.repeat(every),
    )


def _token(field: str, term: str) -> int:
    """Tell words, tags and speakers apart, as the index does."""
    return zlib.crc32(f"{field}{term}".encode())


def _counted(terms: Iterable[str]) -> dict[int, int]:
    found: dict[int, int] = {}
    for term in terms:
        token = _token("w", term)
        found[token] = found.get(token, 0) + 1
    return found


async def _search_ms(site: Site, its: _Large, text: str) -> float:
    began = time.perf_counter()
    await _find(site, its, await _search_of(site, text))
    return 1000 * (time.perf_counter() - began)


async def _find(site: Site, its: _Large, search: Search) -> tuple[Evidence, Sequence[int]]:
    """The evidence, with the distances that a recall measures, and the best by their score."""
    ranked: list[tuple[Evidence, Sequence[int]]] = []

    def rank(found: Evidence) -> list[_Found]:
        order = np.argsort(-fuse(found).score, kind="stable")[: 2 * LIMIT + SPARE_HITS]
        ranked.append((found, found.seqs[order].tolist()))
        return [_Found(seq) for seq in ranked[-1][1]]

    measure = Measuring(site.storage.database, its.account.id, (), False, search.scopes)
    await rank_exactly(await evidence.gather_aside([its.loaded], search), rank, measure)
    return ranked[-1]


async def _search_of(site: Site, text: str) -> Search:
    terms = query_terms(text)
    [vector] = await site.embedder.embed([text])
    turned = (vector @ _turn(len(vector))).astype(np.float16)
    found = [(_token(t.index, t.text), t.ordinal, t.weight) for t in terms.terms]
    return Search(
        scopes=[Scope(NAMESPACE_ID, 1, {_MODEL: turned}, found)],
        query_words=terms.query_words,
        filters=Filters(utc_now()),
        limit=LIMIT,
        neighbours=True,
    )


async def _compared(site: Site, its: _Large, texts: Sequence[str]) -> tuple[float, float]:
    """The shares of the nearest ten, and of a hybrid search's first ten, that exact ones have."""
    found, alike = [], []
    whole = its.vectors.astype(np.float32)
    whole /= np.linalg.norm(whole, axis=1, keepdims=True)
    for text in texts:
        search = await _search_of(site, text)
        ours, best = await _find(site, its, search)
        unit = search.scopes[0].embeddings[_MODEL].astype(np.float32)
        near = whole @ (unit / np.linalg.norm(unit))
        with patch.object(evidence, "search_meaning", partial(_Exact, near)):
            _, exact = await _find(site, its, search)
        tenth = np.partition(near, -LIMIT)[-LIMIT]
        nearest = ours.seqs[np.argsort(ours.nearest)[:LIMIT]] - 1
        found.append(float((near[nearest] >= tenth - EQUAL).mean()))
        alike.append(len({*best[:LIMIT]} & {*exact[:LIMIT]}) / LIMIT)
    return statistics.fmean(found), statistics.fmean(alike)


class _Exact:
    """Distances of whole vectors, one of each memory, all of which may be found."""

    is_estimated = is_coded = False

    def __init__(
        self,
        near: Floats,
        segments: Sequence[Segment],
        seqs: npt.NDArray[np.int64],
        admitted: npt.NDArray[np.bool_],
        count: int,
        limit: int,
    ) -> None:
        self._distances = 1.0 - near.astype(np.float64)
        self.first = take_first(np.arange(len(near)), self._distances, seqs, count)
        self.means = float(self._distances.mean()), float(self._distances.mean())

    def of(self, chosen: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], ...]:
        its = self._distances[chosen]
        return its, its, np.ones(len(chosen), np.int64)
