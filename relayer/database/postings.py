"""The statement that finds the few memories which a rare token leaves.

Not here: recall by words (`recall`), storing postings (`memories`), what tokens are
(`relayer.sealed.index`).
"""

import uuid
from collections.abc import Sequence
from typing import Final

from relayer.database.pool import Database
from relayer.sealed.keys import AccountId

FEW: Final = 1_000  # beyond them, to look at one memory after another finds a page sooner

# Which memories have a token of the ordinal that fewest have, where these are few. No ordinal is
# followed beyond that, however many tokens it has: one for each namespace and epoch.
_HOLDERS: Final = """
WITH found AS MATERIALIZED (
    SELECT ARRAY(SELECT p.memory_id
                 FROM unnest($2::int[], $3::int[], $4::bigint[]) AS t (namespace_id, ordinal, token)
                 CROSS JOIN LATERAL (SELECT h.memory_id FROM postings h
                                     WHERE h.account_id = $1 AND h.namespace_id = t.namespace_id
                                       AND h.token = t.token
                                     LIMIT $5 + 1) p
                 WHERE t.ordinal = o.ordinal
                 LIMIT $5 + 1) AS ids
    FROM (SELECT DISTINCT ordinal FROM unnest($3::int[]) AS u (ordinal)) o
)
SELECT ids FROM found WHERE cardinality(ids) <= $5 ORDER BY cardinality(ids) LIMIT 1
"""


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
