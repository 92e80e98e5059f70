"""The places of a memory's words, and the statement that finds the few which a rare token leaves.

Not here: recall by words (`recall`), what tokens are (`relayer.sealed.index`).

- A memory of few words has them in its row, each token with its frequency, in an index of tokens.
- Those of a longer text are rows of `postings`: each is found without reading the others, and they
  are stored before the account is locked.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from relayer.database.pool import Database
from relayer.sealed.keys import AccountId

IN_ROW_MAX: Final = (
    128  # words of a row that stays whole: PostgreSQL moves some of 2,000 bytes away
)
FEW: Final = 1_000  # beyond them, to look at one memory after another finds a page sooner


def holders(namespace_id: str, token: str, columns: str = "") -> str:
    """Return SQL for (frequency, word_count, memory_id) of what has that token in that namespace,
    or with these columns of a memory `m` in place of the last.

    The index of tokens holds those of all accounts. A planner takes one condition on an array for a
    share of them, and would read the namespace instead; by two, it expects few.
    """
    rows = "JOIN memories m ON m.account_id = $1 AND m.memory_id = w.memory_id" if columns else ""
    return f"""(
    SELECT w.frequency, w.word_count, {columns or "w.memory_id"} FROM postings w {rows}
    WHERE w.account_id = $1 AND w.namespace_id = {namespace_id} AND w.token = {token}
    UNION ALL
    SELECT get_byte(m.frequencies, array_position(m.tokens, {token}) - 1)::smallint, m.word_count,
           {columns or "m.memory_id"}
    FROM memories m
    WHERE m.account_id = $1 AND m.namespace_id = {namespace_id} AND m.frequencies IS NOT NULL
      AND m.tokens @> ARRAY[{token}] AND m.tokens && ARRAY[{token}]
)"""


# Which memories have a token of the ordinal that fewest have, where these are few. No ordinal is
# followed beyond that, however many tokens it has: one for each namespace and epoch.
_HOLDERS: Final = f"""
WITH found AS MATERIALIZED (
    SELECT ARRAY(SELECT p.memory_id
                 FROM unnest($2::int[], $3::int[], $4::bigint[]) AS t (namespace_id, ordinal, token)
                 CROSS JOIN LATERAL (SELECT h.memory_id
                                     FROM {holders("t.namespace_id", "t.token")} h
                                     LIMIT $5 + 1) p
                 WHERE t.ordinal = o.ordinal
                 LIMIT $5 + 1) AS ids
    FROM (SELECT DISTINCT ordinal FROM unnest($3::int[]) AS u (ordinal)) o
)
SELECT ids FROM found WHERE cardinality(ids) <= $5 ORDER BY cardinality(ids) LIMIT 1
"""


@dataclass(frozen=True)
class Words:
    """The words of several memories, as parameters of a statement that stores them.

    Attributes:
        tokens: of all memories, one after the other.
        firsts, lasts: the places, from 1, of each memory's among them.
        frequencies: of each memory's tokens, a byte each; None where they are rows or there are
            none.
        rows: (memory's place among these, token, frequency) of each word that is a row.
    """

    tokens: list[int]
    firsts: list[int]
    lasts: list[int]
    frequencies: list[bytes | None]
    rows: list[tuple[int, int, int]]

    @classmethod
    def of(cls, postings: Sequence[Mapping[int, int]]) -> "Words":
        """Return the words of memories, given as token → frequency of each."""
        lasts = list(accumulate(len(its) for its in postings))
        return cls(
            tokens=[token for its in postings for token in its],
            firsts=[last - len(its) + 1 for last, its in zip(lasts, postings, strict=True)],
            lasts=lasts,
            frequencies=[bytes(its.values()) if is_in_row(its) else None for its in postings],
            rows=[
                (place, token, frequency)
                for place, its in enumerate(postings)
                if not is_in_row(its)
                for token, frequency in its.items()
            ],
        )


def is_in_row(postings: Mapping[int, int]) -> bool:
    """Return true if a memory has so few words, and any, that they are in its row."""
    return 0 < len(postings) <= IN_ROW_MAX


async def few_with(
    database: Database, account: AccountId, tokens: Sequence[tuple[int, int, int]]
) -> list[uuid.UUID] | None:
    """Return memories that include all with one token of each ordinal; None: they are not few.

    Args:
        tokens: (namespace id, ordinal, token).
    """
    if not tokens:
        return []
    columns = zip(*tokens, strict=True)
    rows = await database.fetch(_HOLDERS, account, *columns, FEW)
    return rows[0]["ids"] if rows else None
