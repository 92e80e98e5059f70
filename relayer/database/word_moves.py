"""Statements that move the words which an earlier release stored into the rows of their memories.

Not here: where words are (`postings`), what a new memory's are (`write_statement`).

- No key is needed, and recalls find the words in either place meanwhile.
- A page of memories moves in one transaction, under the account's lock; whoever stops begins again
  with what is left, which an index tells.
"""

from typing import Final

from relayer.database import index_size
from relayer.database.index_steps import note_change, note_step
from relayer.database.pool import Database
from relayer.database.postings import IN_ROW_MAX
from relayer.database.vectors import DELETE_POSTINGS
from relayer.sealed.keys import AccountId

PAGE: Final = 500  # memories that move together: a tenth of a second
PAGES_MAX: Final = 100  # of all accounts at a time

# As the index of these says it.
_IS_APART: Final = f"""
    m.frequencies IS NULL AND cardinality(m.tokens) BETWEEN 1 AND {IN_ROW_MAX}
"""
_ACCOUNTS: Final = f"""
SELECT a.whole_id FROM accounts a
WHERE a.closed_at IS NULL
  AND EXISTS (SELECT 1 FROM memories m WHERE m.account_id = a.account_id AND {_IS_APART})
"""
# A word whose row is missing is counted as said once.
_READ: Final = f"""
SELECT m.memory_id, m.namespace_id, m.seq,
       ARRAY(SELECT coalesce(p.frequency, 1)
             FROM unnest(m.tokens) WITH ORDINALITY AS t (token, place)
             LEFT JOIN postings p ON p.account_id = $1 AND p.namespace_id = m.namespace_id
                                 AND p.token = t.token AND p.memory_id = m.memory_id
             ORDER BY t.place) AS frequencies
FROM memories m WHERE m.account_id = $1 AND {_IS_APART} LIMIT $2
"""
_SET: Final = """
UPDATE memories m SET frequencies = r.frequencies
FROM unnest($2::uuid[], $3::bytea[]) AS r (memory_id, frequencies)
WHERE m.account_id = $1 AND m.memory_id = r.memory_id
"""


async def move_words(database: Database) -> None:
    """Move the words of some memories that have few.

    Raises:
        Unavailable: the database is away.
    """
    pages = 0
    for row in await database.fetch(_ACCOUNTS):
        while pages < PAGES_MAX and await _move_page(database, AccountId(row["whole_id"])):
            pages += 1


async def _move_page(database: Database, account: AccountId) -> bool:
    """Move those of a page of an account's memories; whether there was any."""
    async with database.transaction() as connection:
        await note_change(connection, account)
        rows = await connection.fetch(_READ, account, PAGE)
        if not rows:
            return False
        ids = [row["memory_id"] for row in rows]
        await connection.execute(DELETE_POSTINGS, account, ids)
        await connection.execute(_SET, account, ids, [bytes(row["frequencies"]) for row in rows])
        await index_size.count(connection, account, ids)
        await note_step(connection, account, [(row["namespace_id"], row["seq"]) for row in rows])
    return True
