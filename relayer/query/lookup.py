"""The look-up keys of a query: words and times, and blind tokens and vectors by namespace.

Not here: which words count (`terms.py`), embedding (`vectors.py`), the look-up itself
(`database.recall`, `memory_index.evidence`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from relayer.database import recall as search
from relayer.embedding.embedders import Vectors
from relayer.query.heading import terms_of_speaker
from relayer.query.order import order_asked
from relayer.query.periods import periods, span_terms
from relayer.query.query import Query
from relayer.query.several import asks_for_several
from relayer.query.terms import QueryTerms, Term, query_terms
from relayer.sealed import index
from relayer.sealed.keys import NamespaceKey
from relayer.sealed.vector_turn import derive_vector_turn

LOOKED_UP_MAX: Final = 32_768  # entries of the index, of all namespaces and epochs together


def terms_and_spans(
    query: Query, now: datetime
) -> tuple[QueryTerms, Sequence[tuple[datetime, datetime]]]:
    """Return the terms to look up, and the times that the query names."""
    terms = QueryTerms((), (), 0)
    if query.mode != "vector":
        terms = query_terms(query.text, goal=query.goal, aliases=query.aliases)
    if query.leg_weights is not None:  # the caller's own formula has no place for a preference
        return terms, ()
    terms = replace(terms, several=asks_for_several(query.text))
    if spans := periods(query.text, now):
        return (terms.with_days(span_terms(spans)) if terms.words else terms), spans
    return replace(terms, order=order_asked(query.text)), ()


def name_tokens(keys: Sequence[tuple[int, NamespaceKey]], terms: QueryTerms) -> search.Tokens:
    """Return, by namespace and epoch, the tokens of a query's words as names of speakers."""
    return [(number, index.tokens(key, "p", terms.names)) for number, key in keys]


def scopes_of(
    keys: Sequence[tuple[int, NamespaceKey]], query: Query, terms: QueryTerms
) -> list[search.Scope]:
    """Return the query as each namespace and epoch knows it, but for its vectors."""
    looked_up = terms.terms[: LOOKED_UP_MAX // max(len(keys), 1)]
    return [
        search.Scope(
            namespace_id=number,
            epoch=key.epoch,
            words=_words(key, looked_up),
            filters=index.filters(
                key,
                tags=query.tags,
                source=query.source,
                metadata=query.metadata,
                speaker=terms_of_speaker(query.speaker or ""),
            ),
        )
        for number, key in keys
    ]


def _words(key: NamespaceKey, terms: Sequence[Term]) -> list[tuple[int, int, float]]:
    """Return token, ordinal and weight of each term; those of one index are made together."""
    indexes = {term.index for term in terms}
    tokens = {
        name: iter(index.tokens(key, name, (term.text for term in terms if term.index == name)))
        for name in indexes
    }
    return [(next(tokens[term.index]), term.ordinal, term.weight) for term in terms]


def with_vectors(
    scopes: Sequence[search.Scope],
    keys: Sequence[tuple[int, NamespaceKey]],
    vectors: Mapping[str, Vectors],
) -> list[search.Scope]:
    """Return the same with its vectors, by model, turned for each namespace and epoch."""
    return [
        replace(scope, embeddings=_turn(key, vectors))
        for scope, (_, key) in zip(scopes, keys, strict=True)
    ]


def _turn(key: NamespaceKey, vectors: Mapping[str, Vectors]) -> dict[str, npt.NDArray[np.float16]]:
    """Return model → the query's vector as one namespace and epoch knows it, (dim,)."""
    return {
        model: derive_vector_turn(key, model, found.shape[1]).apply(found)[0].astype(np.float16)
        for model, found in vectors.items()
    }
