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

# Which memories have each token, where they are few.
_HOLDERS: Final = """
SELECT f.ordinal, CASE WHEN cardinality(f.ids) <= $5 THEN f.ids END AS ids
FROM (SELECT t.ordinal, ARRAY(SELECT p.memory_id FROM postings p
                              WHERE p.account_id = $1 AND p.namespace_id = t.namespace_id
                                AND p.token = t.token
                              LIMIT $5 + 1) AS ids
      FROM unnest($2::int[], $3::int[], $4::bigint[]) AS t (namespace_id, ordinal, token)) f
"""


async def few_with(
    database: Database, account: AccountId, tokens: Sequence[tuple[int, int, int]]
) -> list[uuid.UUID] | None:
    """Memories among which are all that have one token of each ordinal; None: they are not few.

    Args:
        tokens: (namespace id, ordinal, token).
    """
    columns = list(zip(*tokens, strict=True)) or [(), (), ()]
    found: dict[int, list[uuid.UUID] | None] = {}
    for row in await database.fetch(_HOLDERS, account, *columns, FEW):
        known = found.setdefault(row["ordinal"], [])
        if known is not None:
            found[row["ordinal"]] = None if row["ids"] is None else known + row["ids"]
    few = [ids for ids in found.values() if ids is not None and len(ids) <= FEW]
    return min(few, key=len, default=None if found else [])
