"""Every statement of the relayer keeps to what a cluster can run, judged from its parse tree."""

import re
from collections.abc import AsyncIterator
from types import ModuleType

import pytest
import pytest_asyncio

from relayer.database import migrate, pool, queue
from relayer.database.pool import Database
from relayer.postgres.embedded import EmbeddedPostgres
from tests.conftest import database_copy
from tests.distribution import rules
from tests.distribution.parse_tree import parsed
from tests.distribution.query import Query, catalogue
from tests.statements import HOUSEKEEPING, OVER_ALL, STATEMENTS

EXEMPT = HOUSEKEEPING | OVER_ALL


def statements_of(module: ModuleType) -> dict[str, str]:
    """Name → each statement that a module has beside those of `tests.statements`."""
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}": text
        for name, text in vars(module).items()
        if isinstance(text, str) and re.match(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH)\b", text)
    }


# pgqueuer's tables are on the coordinator alone; none of these asks for a tenant's table as well.
OF_QUEUE = statements_of(queue)
# Run before anybody serves, and of no account.
AT_START = statements_of(migrate) | statements_of(pool)
# Parts that have nothing to do with each other are sent apart: a nonce and the row that tells of a
# crash, of another key; two numbers.
OF_SEVERAL_PARTS = {
    "requests._RECORD_NONCE",
    "requests._RECORD_NONCE_AND_READ",
    "watch._WAITING",
}
# Asks for what is of a key and what is of an account, in one trip where both are on one server.
NOT_ON_A_CLUSTER = {"requests._RECORD_NONCE_AND_READ"}
# What it deletes and what it then looks for are rows of different states.
READS_OTHER_ROWS = {"deletion._CLOSE_NAMESPACE"}

BOUND = """
SELECT m.memory_id FROM memories m JOIN vectors v ON v.account_id = m.account_id
WHERE m.account_id = $1 AND v.memory_id = m.memory_id
"""
# What must be found → (the rule, a statement that breaks it).
WRONG = {
    "a table without its account": (
        rules.unbound,
        "SELECT memory_id FROM memories WHERE memory_id = $1",
    ),
    "one of two tables without": (
        rules.unbound,
        "SELECT m.memory_id FROM memories m JOIN vectors v ON v.memory_id = m.memory_id"
        " WHERE m.account_id = $1",
    ),
    "an account that only may be it": (
        rules.unbound,
        "SELECT memory_id FROM memories WHERE account_id = $1 OR pinned",
    ),
    "an account that must not be it": (
        rules.unbound,
        "SELECT memory_id FROM memories WHERE NOT account_id = $1",
    ),
    "another account": (
        rules.unbound,
        "SELECT memory_id FROM memories WHERE account_id = $2 AND blob_id = $1",
    ),
    "some accounts": (
        rules.unbound,
        "SELECT memory_id FROM memories WHERE account_id = ANY ($1::bigint[])",
    ),
    "an inner level that takes the outer's word": (
        rules.unbound,
        "SELECT a.label FROM accounts a WHERE a.account_id = $1 AND (a.incomplete OR EXISTS"
        " (SELECT FROM memories m WHERE m.account_id = a.account_id))",
    ),
    "a CTE without": (
        rules.unbound,
        "WITH m AS MATERIALIZED (SELECT memory_id FROM memories WHERE $1::bigint IS NOT NULL)"
        " SELECT v.part FROM vectors v JOIN m ON m.memory_id = v.memory_id"
        " WHERE v.account_id = $1",
    ),
    "a row of another account": (
        rules.unbound,
        "INSERT INTO blobs (account_id, blob_id, bytes, created_at) VALUES ($2, $1, $3, $4)",
    ),
    "rows of whatever accounts": (
        rules.unbound,
        "INSERT INTO links SELECT account_id, memory_id, 'x', memory_id, created_at FROM memories"
        " WHERE blob_id = $1",
    ),
    "DO UPDATE that asks for the time": (
        rules.refused,
        "INSERT INTO blobs VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (account_id, blob_id) DO UPDATE SET created_at = now()",
    ),
    "DO UPDATE that asks a table": (
        rules.refused,
        "INSERT INTO blobs VALUES ($1, $2, $3, $4) ON CONFLICT (account_id, blob_id)"
        " DO UPDATE SET created_at = (SELECT created_at FROM accounts WHERE account_id = $1)",
    ),
    "VALUES that ask a table": (
        rules.refused,
        "INSERT INTO receipts (account_id, seq, object)"
        " VALUES ($1, (SELECT receipt_seq FROM accounts WHERE account_id = $1), $2)",
    ),
    "an id of chance in UPDATE": (
        rules.refused,
        "UPDATE memories SET superseded_by = gen_random_uuid() WHERE account_id = $1",
    ),
    "this very moment in DELETE": (
        rules.refused,
        "DELETE FROM memories WHERE account_id = $1 AND expires_at < clock_timestamp()",
    ),
    "a subquery without columns": (
        rules.refused,
        "SELECT label FROM accounts a WHERE account_id = $1"
        " AND EXISTS (SELECT FROM memories m WHERE m.account_id = $1)",
    ),
    "a query without columns": (rules.refused, "SELECT FROM accounts WHERE account_id = $1"),
    "a span of a column in UPDATE": (
        rules.refused,
        "UPDATE memories SET expires_at = created_at + interval '1 day' WHERE account_id = $1",
    ),
    "a span of a column where rows are chosen": (
        rules.refused,
        "DELETE FROM memories WHERE account_id = $1 AND created_at + interval '1 day' < $2",
    ),
    "a time of a row as text": (
        rules.refused,
        "UPDATE webhooks SET problem = created_at::text WHERE account_id = $1",
    ),
    "the time where another is missing": (
        rules.refused,
        "UPDATE webhooks SET failing_since = coalesce(failing_since, now()) WHERE account_id = $1",
    ),
    "the time in one of two cases": (
        rules.refused,
        "UPDATE memories SET expires_at = CASE WHEN pinned THEN NULL ELSE now() END"
        " WHERE account_id = $1",
    ),
    "INSERT from its own table, returning": (
        rules.refused,
        "INSERT INTO links SELECT account_id, other_id, relation, memory_id, created_at FROM links"
        " WHERE account_id = $1 RETURNING other_id",
    ),
    "a row for another account": (
        rules.refused,
        "UPDATE memories SET account_id = $2 WHERE account_id = $1",
    ),
    "MERGE": (
        rules.refused,
        "MERGE INTO blobs b USING (SELECT $1::bigint AS id) s ON b.account_id = s.id"
        " WHEN MATCHED THEN DELETE",
    ),
    "the first of each account": (
        rules.unmerged,
        "SELECT a.label FROM accounts a WHERE a.epoch > (SELECT m.epoch FROM memories m"
        " WHERE m.account_id = a.account_id ORDER BY m.epoch LIMIT 1)",
    ),
    "the least of each account": (
        rules.unmerged,
        "SELECT a.label FROM accounts a WHERE a.epoch > (SELECT min(m.epoch) FROM memories m"
        " WHERE m.account_id = a.account_id)",
    ),
    "the newest of each account": (
        rules.unmerged,
        "SELECT a.label, m.seq FROM accounts a CROSS JOIN LATERAL (SELECT seq FROM memories m"
        " WHERE m.account_id = a.account_id ORDER BY seq DESC LIMIT 2) m",
    ),
    "what another part has changed": (
        rules.reread,
        "WITH gone AS (DELETE FROM links WHERE account_id = $1)"
        " SELECT count(*) FROM links WHERE account_id = $1",
    ),
    "what another part has changed, by way of a third": (
        rules.reread,
        "WITH said AS (SELECT label FROM accounts WHERE account_id = $1),"
        " changed AS (UPDATE accounts SET label = '' WHERE account_id = $1)"
        " SELECT label FROM said",
    ),
    "a row before the one it refers to": (
        rules.too_early,
        "WITH grant_ AS (INSERT INTO grants VALUES ($1, 1, '', '', '', $2, NULL))"
        " INSERT INTO accounts (account_id) VALUES ($1)",
    ),
}  # fmt: skip
APART = "SELECT m.memory_id FROM memories m JOIN key_owner k ON k.whole_id = m.blob_id"
LOOSE = "SELECT m.memory_id FROM memories m JOIN vectors v ON v.memory_id = m.memory_id"


@pytest_asyncio.fixture(scope="module")
async def queries(postgres: EmbeddedPostgres, template: str) -> AsyncIterator[dict[str, Query]]:
    """Every statement of the relayer, and the wrong ones of this module, as PostgreSQL reads it."""
    wrong = {name: text for name, (_, text) in WRONG.items()}
    others = {"bound": BOUND, "apart": APART, "loose": LOOSE}
    async with database_copy(postgres, template) as copy:
        database = await Database.connect(copy.connect_args, connections=1)
        known = await catalogue(database)
        await database.close()
        trees = await parsed(
            copy.connect_args, {**STATEMENTS, **OF_QUEUE, **AT_START, **wrong, **others}
        )
    yield {name: Query(tree, known) for name, [tree] in trees.items()}


def ours(queries: dict[str, Query]) -> dict[str, Query]:
    """Those of the relayer."""
    return {name: query for name, query in queries.items() if name in STATEMENTS | OF_QUEUE}


def broken(found: dict[str, set[str]]) -> dict[str, set[str]]:
    """Those where something was found."""
    return {name: what for name, what in found.items() if what}


class TestEveryStatement:
    def test_names_the_account_for_each_of_its_tables(self, queries: dict[str, Query]) -> None:
        """One request visits one node."""
        found = {n: rules.unbound(q) for n, q in ours(queries).items() if n not in EXEMPT}
        assert broken(found) == {}

    def test_of_all_accounts_is_needed_as_such(self, queries: dict[str, Query]) -> None:
        bound = {
            name
            for name in EXEMPT
            if "account" in rules.groups(queries[name]) and not rules.unbound(queries[name])
        }
        assert bound == set()

    def test_of_all_accounts_joins_within_each(self, queries: dict[str, Query]) -> None:
        loose = {name for name in EXEMPT if not rules.is_connected(queries[name])}
        assert loose == OF_SEVERAL_PARTS

    def test_of_all_accounts_picks_none_for_each_of_its_rows(
        self, queries: dict[str, Query]
    ) -> None:
        assert broken({name: rules.unmerged(queries[name]) for name in EXEMPT}) == {}

    def test_asks_for_tables_that_lie_together(self, queries: dict[str, Query]) -> None:
        found = {name: rules.groups(query) for name, query in ours(queries).items()}
        mixed = {name for name, where in found.items() if len(where - {"everywhere"}) > 1}
        assert mixed == NOT_ON_A_CLUSTER

    def test_is_none_that_a_cluster_refuses(self, queries: dict[str, Query]) -> None:
        asked = ours(queries) | {name: queries[name] for name in AT_START}
        assert "migrate._HAS_ACCOUNTS" in asked
        assert broken({n: rules.refused(q) for n, q in asked.items()}) == {}

    def test_reads_nothing_that_a_part_of_it_has_changed(self, queries: dict[str, Query]) -> None:
        found = broken({n: rules.reread(q) for n, q in ours(queries).items()})
        assert found.keys() == READS_OTHER_ROWS

    def test_inserts_what_is_referred_to_first(self, queries: dict[str, Query]) -> None:
        assert broken({n: rules.too_early(q) for n, q in ours(queries).items()}) == {}

    def test_locks_rows_of_one_account(self, queries: dict[str, Query]) -> None:
        locking = {name for name, query in ours(queries).items() if rules.locks(query)}
        coordinators = {n for n in OF_QUEUE if rules.groups(queries[n]) == {"coordinator"}}
        assert locking - coordinators
        assert (locking - coordinators) & EXEMPT == set()


class TestTheRules:
    @pytest.mark.parametrize("name", WRONG)
    def test_find(self, queries: dict[str, Query], name: str) -> None:
        assert WRONG[name][0](queries[name])

    def test_find_two_groups(self, queries: dict[str, Query]) -> None:
        assert rules.groups(queries["apart"]) == {"account", "key"}

    def test_find_a_join_across_accounts(self, queries: dict[str, Query]) -> None:
        assert not rules.is_connected(queries["loose"])

    def test_let_an_equality_go_round(self, queries: dict[str, Query]) -> None:
        assert rules.unbound(queries["bound"]) == set()
        assert rules.is_connected(queries["bound"])


async def test_the_settings_that_a_cluster_needs_are_the_sessions(database: Database) -> None:
    """A generic plan of a statement with CTEs is refused there where it is forced."""
    [how] = await database.fetch("SHOW plan_cache_mode")
    assert how[0] == "auto"
