"""The order of steps of a recall, and nothing else.

    1. `_prepare`: find the query's words, times and speaker, hash and embed it, for each
       namespace's keys.
    2. `_gather`: the evidence, by the statement of `database.recall` or from `resident`, which
       alone knows namespaces whose index is sealed.
    3. `_rank`: one score of it (`query.fusion`); with age and importance, hits (`query.hits`).
    4. `_open_best`: read and open the best of them (`opener`), what only asks put back, copies
       last (`query.rank`).

Not here: what is asked (`query.query`), what it is looked up by (`query.lookup`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from relayer.concurrency import HASHING, PARSING, TURNING, offload
from relayer.database import recall as search
from relayer.database.pool import Database
from relayer.embedding.embedders import FULL_COVERAGE, Coverage
from relayer.memories.opener import Caller, Opener, take_fitting
from relayer.memory_index import evidence as resident
from relayer.memory_index.distances import Measuring, rank_exactly
from relayer.memory_index.index import MemoryIndex
from relayer.memory_index.namespace import LoadedNamespace
from relayer.query import fusion, rank
from relayer.query.asking import only_asks
from relayer.query.hits import Hit, better_of, hits_of
from relayer.query.lookup import name_tokens, scopes_of, terms_and_spans, with_vectors
from relayer.query.order import Event, event_asked
from relayer.query.query import Query
from relayer.query.speakers import add_speaker
from relayer.query.terms import GOAL_WEIGHT, QueryTerms
from relayer.query.understanding import Understanding
from relayer.query.vectors import QueryEmbedder, QueryVectors
from relayer.record import Memory
from relayer.redact import redact
from relayer.sealed.keys import Namespace, NamespaceKey
from relayer.telemetry.instruments import time_stage
from relayer.tenants.accounts import Access
from relayer.tenants.namespaces import Namespaces

ANSWER_BYTES_MAX: Final = 16 * 2**20  # sealed, of what is opened for one answer
PAGE_MAX: Final = 25  # memories that are read at once, each of up to a MiB
PAGE_MIN: Final = 10  # further ones when copies leave room
BEGINNING: Final = datetime(1, 1, 1, tzinfo=UTC)
EVENT_NEAR: Final = 0.5  # of a memory that is surely of the event that a query names
EVENT_HITS: Final = 20  # that are looked at for an event: whether time tells them apart
HEAD_START_S: Final = 0.001
SEARCHES_MAX: Final = 3  # of one question, while memories are changed
END_CHARACTERS: Final = 256  # of a long query, that tell what the model knows of either end
SPARE_HITS: Final = 20  # beyond twice the limit, so that copies can be replaced
Spans = Sequence[tuple[datetime, datetime]]


@dataclass(frozen=True)
class RecalledMemory:
    """One recalled memory and why.

    Attributes:
        tokens: its length, where a budget was given.
        look: the number of the further look that found it, 0 of the query itself.
    """

    memory: Memory
    hit: Hit
    tokens: int | None = None
    look: int = 0


@dataclass(frozen=True)
class Recalled:
    """The answer to a query.

    `dropped` memories were found and could not be opened. `degraded`: some memories could not be
    searched by meaning, or those of a sealed index not at all yet. `estimated`: distances of
    memories that are not shown were estimates. With a budget, `tokens` is what the texts have
    together, and `left_out` how many did not fit.
    """

    found: Sequence[RecalledMemory]
    dropped: int
    degraded: bool
    tokens: int | None = None
    left_out: int = 0
    estimated: bool = False


@dataclass(frozen=True)
class _Prepared:
    """A query as it is looked for: where, by which words and vectors, and what is known of it.

    Attributes:
        keys: (namespace number, key) of every epoch.
        has_records: whether any memory of its namespaces has a sealed record.
        spans: the times that it names.
        event: what it asks to be before or after, where it names no time.
        scopes: it, as each namespace and epoch knows it, but for its vectors.
        held: its namespaces, where all of them are in memory.
    """

    now: datetime
    keys: Sequence[tuple[int, NamespaceKey]]
    has_records: bool
    terms: QueryTerms
    spans: Spans
    event: Event | None
    scopes: Sequence[search.Scope]
    held: Sequence[LoadedNamespace] | None
    vectors: QueryVectors
    known: Coverage


@dataclass(frozen=True)
class _Ranking:
    """The hits of a search.

    Attributes:
        hits: best first.
        degraded: whether some memories could not be searched by meaning, or not at all yet.
        estimated: whether distances of what is not shown were estimates.
        has_lost: whether some of it was gone or changed before it was measured.
        held: the namespaces that were searched in memory.
        known: what the model knows of the query, where both words and vectors were searched.
        event_spans: the times before or after an event that was looked for.
    """

    hits: Sequence[Hit]
    degraded: bool
    estimated: bool
    has_lost: bool
    held: Sequence[LoadedNamespace]
    known: Coverage | None = None
    event_spans: Spans | None = None


class RecallService:
    """Finds the memories that answer a query, of one account at a time."""

    def __init__(
        self,
        *,
        database: Database,
        opener: Opener,
        namespaces: Namespaces,
        embedder: QueryEmbedder,
        resident: MemoryIndex,
    ) -> None:
        self._database = database
        self._opener = opener
        self._namespaces = namespaces
        self._embedder = embedder
        self._resident = resident
        self._understanding = Understanding()

    @time_stage("recall.whole")
    async def recall(self, caller: Caller, query: Query) -> Recalled:
        """Return the memories that answer a query, best first.

        Raises:
            NotAllowed: not a reader of a namespace, or its key is missing.
        """
        for namespace in query.namespaces:
            caller.access.require(namespace, "reader")
        query = redact_query(caller, query)
        ranking, found, dropped = await self._find(caller, query)
        if ranking.known is not None:
            self._understanding.note(ranking.known)
        recalled = Recalled(found, dropped, ranking.degraded, estimated=ranking.estimated)
        return await self.keep_within(recalled, query.max_tokens)

    async def keep_within(self, recalled: Recalled, tokens_max: int | None) -> Recalled:
        """Return what of an answer fits into a budget; all of it where there is none."""
        if tokens_max is None:
            return recalled
        # Counting takes a second for each megabyte, and others are waiting for this loop.
        kept, tokens = await asyncio.to_thread(self._within_budget, recalled.found, tokens_max)
        left_out = len(recalled.found) - len(kept)
        return replace(recalled, found=kept, tokens=tokens, left_out=left_out)

    async def _find(
        self, caller: Caller, query: Query
    ) -> tuple[_Ranking, list[RecalledMemory], int]:
        """Return the ranking, what of it opens, and how much does not.

        Where a memory was changed between search and opening, it is searched again: what it said by
        `as_of` has another row then, and what it says now may not be what the query admits. Or it
        had no distance to measure any more. What is in memory may be as old as the request, so that
        is done as things are by now.
        """
        search_of = self._keyword_first if query.mode == "keyword_first" else self._search
        for _ in range(SEARCHES_MAX):
            ranking = await search_of(caller, query)
            found, dropped = await self._open_best(caller, ranking, query)
            admitted = [f for f in found if query.admits(f.memory)]
            if len(admitted) == len(found) and not ranking.has_lost:
                break
            now = replace(caller.access, index_mark=None, index_choices=None)
            caller = replace(caller, access=now)
        return ranking, admitted, dropped

    async def _keyword_first(self, caller: Caller, query: Query) -> _Ranking:
        """Search by words; search by meaning behind them, if they find too little.

        What is near only beside the best that words found is no reason not to ask meaning, and
        comes behind both, as far as meaning cannot tell. An event is looked for until it is found.
        """
        primary = await self._search(caller, replace(query, mode="keyword"))
        near = [hit for hit in primary.hits if hit.relevance >= query.min_relevance]
        if len(near) >= query.min_primary_results:
            return primary
        by_meaning = replace(query, mode="vector")
        further = await self._search(caller, by_meaning, primary.event_spans or None)
        hits = {hit.seq: hit for hit in near}
        for hit in further.hits:
            hits.setdefault(hit.seq, hit)
        if len(near) < len(primary.hits):
            by_both = replace(query, mode="hybrid")
            both = await self._search(caller, by_both, further.event_spans)
            for hit in both.hits:
                hits.setdefault(hit.seq, hit)
            further = replace(further, has_lost=further.has_lost or both.has_lost)
        return replace(further, hits=list(hits.values()))

    async def _search(
        self, caller: Caller, query: Query, event_spans: Spans | None = None
    ) -> _Ranking:
        """Return everything found and relevant enough; `event_spans` are known of its event."""
        prepared = await self._prepare(caller, query)
        if prepared.event is not None:
            if event_spans is None:
                event_spans = await self._find_event(caller, query, prepared.event, prepared.now)
            prepared = replace(prepared, spans=event_spans)
        most = 2 * query.limit + SPARE_HITS
        rankings = [
            await self._rank(caller.access, query, prepared, end, most)
            for end in range(prepared.vectors.ends)
        ]
        degraded = query.mode != "keyword" and not prepared.vectors.complete
        degraded |= any(one.is_partial for one in prepared.held or ())
        degraded |= caller.access.unrestored
        both = query.mode == "hybrid" and prepared.vectors.by_model
        known = prepared.known if both else None
        hits = better_of([found for found, _, _ in rankings])[:most]
        estimated = any(is_estimated for _, is_estimated, _ in rankings)
        has_lost = any(lost for _, _, lost in rankings)
        held = prepared.held or ()
        return _Ranking(hits, degraded, estimated, has_lost, held, known, event_spans)

    async def _find_event(self, caller: Caller, query: Query, event: Event, now: datetime) -> Spans:
        """Return the span before or after an event, if a memory is surely of it: by a look at it.

        It is looked for as if nothing else was asked, and counts from the nearest memory's time.
        """
        look = replace(query, text=event.text, goal=None, min_relevance=0.0)
        prepared = await self._prepare(caller, look)
        found, _, _ = await self._rank(caller.access, look, prepared, 0, EVENT_HITS)
        moments = [hit.moment for hit in found]
        if not found or 1.0 - found[0].distance < EVENT_NEAR:
            return ()
        if len(moments) > 1 and max(moments) - min(moments) < rank.ORDERED_SECONDS_MIN:
            return ()
        moment = datetime.fromtimestamp(moments[0], UTC)
        return [(BEGINNING, moment) if event.before else (moment + timedelta(microseconds=1), now)]

    async def _prepare(self, caller: Caller, query: Query) -> _Prepared:
        """Find its words, times and speaker; hash it, while it is embedded beside this thread."""
        keys, has_records = await self._keys(caller, query.namespaces)
        now = query.as_of or caller.access.time
        numbers = sorted({number for number, _ in keys})
        early = self._embed_early(caller, query, numbers) if has_records else None
        held = await self._find_loaded(caller.access, keys, numbers, has_records=has_records)
        used = {n.namespace_id: n.models for n in held or () if not n.is_partial}
        self._embedder.note_used(caller.access.account, used)
        terms, spans = await offload(_parsing_size(query), terms_and_spans, query, now)
        event = None if spans or query.leg_weights is not None else event_asked(query.text)
        terms, embedded = await self._find_speaker(caller.access, query, keys, terms, held)
        if early is not None:
            await asyncio.wait({early})
        embedding = asyncio.ensure_future(
            self._embed(caller, replace(query, text=embedded), numbers)
        )
        embedding.add_done_callback(_retrieve)
        try:
            # It is given the time to begin.
            await asyncio.wait({embedding}, timeout=HEAD_START_S)
            in_use = self._embedder.used(caller.access.account, numbers)
            known = None if in_use is None else self._coverage(query, in_use)
            hashes = len(keys) * (len(terms.terms) + len(query.tags) + len(query.metadata))
            scopes = await offload(HASHING * hashes, scopes_of, keys, query, terms)
            vectors = await embedding
        finally:
            embedding.cancel()
        known = known or self._coverage(query, vectors.used)
        return _Prepared(now, keys, has_records, terms, spans, event, scopes, held, vectors, known)

    def _embed_early(
        self, caller: Caller, query: Query, numbers: Sequence[int]
    ) -> "asyncio.Future[None] | None":
        """Begin to embed a query that waits for a sealed index, which may take as long.

        Whom it names as a speaker is not known yet: then it is embedded again.
        """
        account = caller.access.account
        if query.mode == "keyword" or self._resident.sealed.has_all(account, numbers):
            return None
        goal = None if query.goal is None else (query.goal, GOAL_WEIGHT)
        early = asyncio.ensure_future(self._embedder.embed_early(account, query.text, goal))
        early.add_done_callback(_retrieve)
        return early

    async def _find_loaded(
        self,
        access: Access,
        keys: Sequence[tuple[int, NamespaceKey]],
        numbers: Sequence[int],
        *,
        has_records: bool,
    ) -> Sequence[LoadedNamespace] | None:
        """Return the namespaces in memory; None where statements are to search them."""
        if not has_records:
            return await self._resident.find(access, numbers)
        own = {number: [key for n, key in keys if n == number] for number in numbers}
        return await self._resident.sealed.load(access, own)

    async def _find_speaker(
        self,
        access: Access,
        query: Query,
        keys: Sequence[tuple[int, NamespaceKey]],
        terms: QueryTerms,
        held: Sequence[LoadedNamespace] | None,
    ) -> tuple[QueryTerms, str]:
        """Return the terms with the speaker whom the query names, and what of it is embedded.

        What is stored is embedded without its speaker, so the query is, too.
        """
        if not (keys and terms.names):
            return terms, query.text
        tokens = await offload(HASHING * len(keys) * len(terms.names), name_tokens, keys, terms)
        if held is None:
            found = await search.find_present(self._database, access.account, tokens)
        else:
            found = resident.find_present(held, tokens)
        speakers = {terms.names[place] for place in found}
        with_speaker, embedded = add_speaker(terms, query.text, speakers)
        # The caller's own formula has no place for a preference.
        return (with_speaker if query.leg_weights is None else terms), embedded

    async def _rank(
        self, access: Access, query: Query, prepared: _Prepared, end: int, most: int
    ) -> tuple[Sequence[Hit], bool, bool]:
        """Return the hits for one end of a long query, or for a whole one, best first.

        With them, whether distances were estimated, and whether some of it was lost meanwhile.
        """
        known, vectors = prepared.known, prepared.vectors
        if vectors.ends > 1:
            part = slice(-END_CHARACTERS, None) if end else slice(END_CHARACTERS)
            known = self._coverage(replace(query, text=query.text[part]), vectors.used)
        dims = len(prepared.keys) * sum(found.shape[1] for found in vectors.by_model.values())
        scopes = await offload(
            TURNING * dims, with_vectors, prepared.scopes, prepared.keys, vectors.at(end)
        )
        evidence = await self._gather(
            access, prepared.held, scopes, query, prepared.terms.query_words
        )

        def rank_hits(its: search.Evidence) -> list[Hit]:
            scores = fusion.fuse(
                its,
                query.leg_weights,
                known=known.share,
                related=vectors.related,
                spelt=prepared.terms.ordinals_of(known.spelt),
                several=prepared.terms.several,
            )
            return hits_of(
                its,
                scores,
                prepared.terms,
                weights=query.weights,
                spans=prepared.spans,
                now=prepared.now,
                min_relevance=query.min_relevance,
                most=most,
            )

        measure = Measuring(
            self._database, access.account, prepared.keys, prepared.has_records, scopes
        )
        hits, has_lost = await rank_exactly(evidence, rank_hits, measure)
        return hits, evidence.is_estimated, has_lost

    @time_stage("recall.search")
    async def _gather(
        self,
        access: Access,
        held: Sequence[LoadedNamespace] | None,
        scopes: Sequence[search.Scope],
        query: Query,
        query_words: int,
    ) -> search.Evidence:
        """Return the evidence, from memory where the namespaces are held there."""
        filters = search.Filters(
            access.time, query.as_of, query.kinds, query.writers, query.after, query.before
        )
        wanted = search.Search(
            scopes=scopes,
            query_words=query_words,
            filters=filters,
            limit=query.limit,
            neighbours=query.leg_weights is None,
        )
        if held is None:
            return await search.gather(self._database, access.account, wanted)
        evidence = await resident.gather_aside(held, wanted)
        if evidence.is_estimated:
            self._resident.note_estimates(access.account, held)
        self._resident.arrange_lists(held)
        return evidence

    async def _keys(
        self, caller: Caller, namespaces: Sequence[Namespace]
    ) -> tuple[list[tuple[int, NamespaceKey]], bool]:
        """Return (namespace number, key) of every epoch, and whether any has sealed records.

        Namespaces without memories have none.
        """
        found, has_records = [], False
        for namespace in dict.fromkeys(namespaces):  # named twice, words would count twice
            keys = caller.keys.of(namespace)
            entry = await self._namespaces.with_epochs(
                caller.access, namespace, {key.epoch for key in keys}
            )
            if entry is not None:
                has_records |= entry.has_records
                for key in keys:
                    known = entry.key_ids.get(key.epoch)
                    if known not in (None, key.key_id):
                        await self._namespaces.check(caller.access.account, key, caller.keys.lender)
                    if known is not None:
                        found.append((entry.namespace_id, key))
        return found, has_records

    @time_stage("recall.embed")
    async def _embed(
        self, caller: Caller, query: Query, namespace_ids: Sequence[int]
    ) -> QueryVectors:
        """Return the query's vectors; none when keywords have to do."""
        if query.mode == "keyword":
            return QueryVectors({}, complete=False)
        goal = None if query.goal is None else (query.goal, GOAL_WEIGHT)
        return await self._embedder.embed(caller.access.account, namespace_ids, query.text, goal)

    def _coverage(self, query: Query, used: frozenset[str]) -> Coverage:
        """Return the coverage of a query; full unless both words and meaning search."""
        return (
            self._embedder.coverage(query.text, used) if query.mode == "hybrid" else FULL_COVERAGE
        )

    @time_stage("recall.open")
    async def _open_best(
        self, caller: Caller, ranking: _Ranking, query: Query
    ) -> tuple[list[RecalledMemory], int]:
        """Return the best of them, copies of better ones behind; and how many did not open.

        What only asks stands behind what has a little less, which is opened to know it.
        """
        found, asking = rank.Copies(_text), set[int]()
        discount = rank.ASKING_DISCOUNT * query.weights.of_search

        def standing(item: RecalledMemory) -> float:
            return item.hit.score - (discount if item.hit.seq in asking else 0.0)

        hits, dropped, at, left = ranking.hits, 0, 0, ANSWER_BYTES_MAX
        while at < len(hits) and left > 0:
            best = hits[at].score  # of what is not opened yet
            sure = sum(f.hit.seq not in asking or standing(f) >= best for f in found.kept)
            if (room := query.limit - sure) <= 0:
                break
            page = hits[at : at + min(max(room, PAGE_MIN) if at else room, PAGE_MAX)]
            at += len(page)
            opened, lost, size = await self._open_page(caller, page, ranking.held, left)
            found.add(opened)
            if query.prefers_statements:
                asking.update(f.hit.seq for f in opened if only_asks(_text(f)))
            dropped, left = dropped + lost, left - size
        kept = sorted(found.kept, key=standing, reverse=True) if asking else found.kept
        return [*kept, *found.copies][: query.limit], dropped

    def _within_budget(
        self, found: Sequence[RecalledMemory], tokens_max: int
    ) -> tuple[list[RecalledMemory], int]:
        """In order, each that still fits, a shorter one also after one that does not; their sum."""
        kept, used = [], 0
        for item in found:
            tokens = self._embedder.count_tokens(_text(item))
            if used + tokens <= tokens_max:
                kept.append(replace(item, tokens=tokens))
                used += tokens
        return kept, used

    async def _open_page(
        self, caller: Caller, hits: Sequence[Hit], held: Sequence[LoadedNamespace], bytes_max: int
    ) -> tuple[list[RecalledMemory], int, int]:
        """Return the first of these hits that still live, fit and open; and two counts.

        They are how many do not open, and how many bytes all that live have, sealed.
        """
        seqs = [hit.seq for hit in hits]
        rows = await self._resident.rows(caller.access.account, held, seqs)
        living = [rows[hit.seq] for hit in hits if hit.seq in rows]
        fit = take_fitting(living, bytes_max)
        opened = await self._opener.open_rows(caller, fit)
        hit_of = {hit.seq: hit for hit in hits}
        found = [
            RecalledMemory(memory, hit_of[row["seq"]])
            for row, memory in zip(fit, opened, strict=True)
            if memory is not None
        ]
        return found, len(fit) - len(found), sum(row["size_bytes"] for row in living)


def _retrieve(embedding: "asyncio.Future[Any]") -> None:
    """Retrieve the failure of an embedding that nobody awaits any more, lest asyncio log it."""
    if not embedding.cancelled():
        embedding.exception()


def _text(found: RecalledMemory) -> str:
    return found.memory.text or ""


def redact_query(caller: Caller, query: Query) -> Query:
    """Return the query without secrets, to be embedded or shown to a model.

    Stored texts hold the same marks.
    """
    if not caller.access.settings.redact:
        return query
    goal = None if query.goal is None else redact(query.goal)[0]
    return replace(query, text=redact(query.text)[0], goal=goal)


def _parsing_size(query: Query) -> int:
    """Estimate the work to find a query's words and times, as `offload` measures it."""
    others = (len(other) for each in query.aliases.values() for other in each)
    return PARSING * (len(query.text) + len(query.goal or "") + sum(others))
