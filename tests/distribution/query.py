"""A statement as its levels: which tables each has, what is equal to what, what it hands up.

Not here: reading a tree (`parse_tree.py`), and what a cluster makes of a statement (`rules.py`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from relayer.database.distribution import BY_ACCOUNT, BY_KEY, EVERYWHERE
from relayer.database.pool import Database
from tests.distribution.parse_tree import Node

SELECT, UPDATE, INSERT, DELETE, MERGE = "1", "2", "3", "4", "5"
RELATION, SUBQUERY, CTE = 0, 1, 6  # kinds of what a query ranges over
AND = "and"

GROUPS = (
    dict.fromkeys(BY_ACCOUNT, "account")
    | dict.fromkeys(BY_KEY, "key")
    | dict.fromkeys(EVERYWHERE, "everywhere")
)
COLUMN = {"account": "account_id", "key": "public_key"}


@dataclass(frozen=True)
class Catalogue:
    """What numbers in a tree mean: tables and their columns, operators, functions.

    `conversions` says of a type how volatile its conversion to and from text is.
    """

    tables: Mapping[int, str]
    columns: Mapping[tuple[int, int], str]
    equals: frozenset[int]
    volatility: Mapping[int, str]
    conversions: Mapping[int, str]
    references: frozenset[tuple[int, int]]

    def group(self, relation: int) -> str:
        """Where a table lies; "" of the catalogue's own."""
        name = self.tables.get(relation, "")
        return GROUPS.get(name, "coordinator" if name else "")


async def catalogue(database: Database) -> Catalogue:
    """The numbers of a database's tables, operators and functions."""
    tables = await database.fetch(
        "SELECT oid, relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        " AND relkind = 'r'"
    )
    columns = await database.fetch(
        "SELECT attrelid, attnum, attname FROM pg_attribute WHERE attrelid = ANY ($1)",
        [r["oid"] for r in tables],
    )
    equals = await database.fetch("SELECT oid FROM pg_operator WHERE oprname = '='")
    functions = await database.fetch("SELECT oid, provolatile::text AS how FROM pg_proc")
    conversions = await database.fetch(
        "SELECT t.oid, max(CASE p.provolatile WHEN 'i' THEN 'i' ELSE 's' END) AS how"
        " FROM pg_type t JOIN pg_proc p ON p.oid IN (t.typinput, t.typoutput) GROUP BY t.oid"
    )
    references = await database.fetch(
        "SELECT conrelid, confrelid FROM pg_constraint WHERE contype = 'f'"
    )
    return Catalogue(
        tables={r["oid"]: r["relname"] for r in tables},
        columns={(r["attrelid"], r["attnum"]): r["attname"] for r in columns},
        equals=frozenset(r["oid"] for r in equals),
        volatility={r["oid"]: r["how"] for r in functions},
        conversions={r["oid"]: r["how"] for r in conversions},
        references=frozenset((r["conrelid"], r["confrelid"]) for r in references),
    )


Term = tuple[object, ...]


@dataclass(eq=False)
class Query:
    """One level of a statement, with the levels inside it."""

    tree: Node
    known: Catalogue
    above: "Query | None" = None
    ctes: dict[str, "Query"] = field(default_factory=dict)
    within: dict[int, "Query"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = {id(c.node("ctequery")): c.text("ctename") for c in self.tree.nodes("cteList")}
        for node in self.tree.within(into="QUERY"):
            if node.kind == "QUERY":
                inner = self.within[id(node)] = Query(node, self.known, self)
                if name := named.get(id(node)):
                    self.ctes[name] = inner

    def levels(self) -> Iterator["Query"]:
        """This query and all inside it."""
        yield self
        for inner in self.within.values():
            yield from inner.levels()

    def own(self) -> Iterator[Node]:
        """The nodes of this level alone."""
        return (n for n in self.tree.within(into="QUERY") if n.kind != "QUERY")

    def entries(self) -> dict[int, Node]:
        """Number → what this level ranges over."""
        return dict(enumerate(self.tree.nodes("rtable"), 1))

    def relations(self) -> dict[int, int]:
        """Number → table, of those entries that are tables of ours; without `excluded`."""
        conflict = self.tree.node("onConflict")
        excluded = 0 if conflict is None else conflict.number("exclRelIndex")
        return {
            n: entry.number("relid")
            for n, entry in self.entries().items()
            if entry.number("rtekind") == RELATION
            and self.known.group(entry.number("relid"))
            and n != excluded
        }

    def command(self) -> str:
        """SELECT, UPDATE, INSERT, DELETE or MERGE."""
        return self.tree.text("commandType")

    def target(self) -> int:
        """The table that this level changes; 0 when it only reads."""
        return self.relations().get(self.tree.number("resultRelation"), 0)

    def read_relations(self) -> set[int]:
        """Tables that this level reads beside the one that it changes."""
        target = self.tree.number("resultRelation")
        return {relation for entry, relation in self.relations().items() if entry != target}

    def level(self, up: int) -> "Query":
        """The query so many levels above."""
        query = self
        for _ in range(up):
            assert query.above is not None
            query = query.above
        return query

    def term(self, node: Node | None) -> Term | None:
        """What an equality may speak of: a parameter, or a column of some level."""
        while node is not None and node.kind == "RELABELTYPE":
            node = node.node("arg")
        if node is None:
            return None
        if node.kind == "PARAM":
            return ("param", node.number("paramid"))
        if node.kind == "VAR":
            level = self.level(node.number("varlevelsup"))
            return level.column(node.number("varno"), node.number("varattno"))
        return None

    def column(self, entry: int, number: int) -> Term:
        """A column, followed into the query that it comes from."""
        range_entry = self.entries()[entry]
        inner: Query | None = None
        if range_entry.number("rtekind") == SUBQUERY:
            subquery = range_entry.node("subquery")
            inner = self.within[id(subquery)]
        elif range_entry.number("rtekind") == CTE:
            inner = self._cte(range_entry.text("ctename"), range_entry.number("ctelevelsup"))
        outputs = [] if inner is None else inner.outputs()
        if inner is not None and 0 < number <= len(outputs):
            found = inner.term(outputs[number - 1].node("expr"))
            if found is not None:
                return found
        return (id(self.tree), entry, number)

    def _cte(self, name: str, up: int) -> "Query | None":
        return self.level(up).ctes.get(name)

    def outputs(self) -> list[Node]:
        """What a query hands up."""
        member = "targetList" if self.command() == SELECT else "returningList"
        return [n for n in self.tree.nodes(member) if n.text("resjunk") != "true"]

    def equalities(self) -> Iterator[tuple[Term, Term]]:
        """Pairs that are equal in every row that this level makes or changes."""
        jointree = self.tree.node("jointree")
        waiting = [] if jointree is None else [jointree]
        while waiting:
            node = waiting.pop()
            if node.kind in ("FROMEXPR", "JOINEXPR"):
                waiting += node.nodes("fromlist")
                waiting += [n for m in ("quals", "larg", "rarg") if (n := node.node(m))]
            elif node.kind == "BOOLEXPR" and node.text("boolop") == AND:
                waiting += node.nodes("args")
            elif node.kind == "OPEXPR" and node.number("opno") in self.known.equals:
                one, other = (self.term(n) for n in node.nodes("args"))
                if one is not None and other is not None:
                    yield one, other
        yield from self._inserted()

    def _inserted(self) -> Iterator[tuple[Term, Term]]:
        if self.command() != INSERT:
            return
        target = self.tree.number("resultRelation")
        for entry in self.tree.nodes("targetList"):
            value = self.term(entry.node("expr"))
            if value is not None:
                yield (id(self.tree), target, entry.number("resno")), value

    def ties(self) -> list[tuple[int, Term]]:
        """Each distributed table of this level, with the column that it is distributed by."""
        found: list[tuple[int, Term]] = []
        for entry, relation in self.relations().items():
            name = COLUMN.get(self.known.group(relation))
            for (table, number), column in self.known.columns.items():
                if table == relation and column == name:
                    found.append((relation, (id(self.tree), entry, number)))
        return found
