"""The words of memories as the database has them, in their rows and as rows of their own."""

from typing import Final

from tests.services import Bench

_IN_ROWS: Final = """
SELECT m.account_id, m.namespace_id, t.token, m.memory_id,
       get_byte(m.frequencies, t.place::int - 1)::smallint AS frequency, m.word_count
FROM memories m CROSS JOIN LATERAL unnest(m.tokens) WITH ORDINALITY AS t (token, place)
WHERE m.frequencies IS NOT NULL
"""
# All of them, wherever they are, with the columns of `postings`.
WORDS: Final = f"""(
SELECT account_id, namespace_id, token, memory_id, frequency, word_count FROM postings
UNION ALL {_IN_ROWS}
)"""


async def make_rows(bench: Bench) -> None:
    """Make each word a row of its own, as an earlier release had it; sizes are not counted anew."""
    await bench.sql(f"INSERT INTO postings {_IN_ROWS}")
    await bench.sql("UPDATE memories SET frequencies = NULL")
