"""What Citus refuses of a statement, and what it would send to every node, told from parse trees.

Not here: which statements there are, and which may visit every node (`test_statements.py`).

- A table is bound to an account where an equality joined by AND ties its column to the parameter,
  on the table's own level of the query: the router prunes shards by nothing else.
"""

from collections.abc import Iterator

from tests.distribution.parse_tree import Node
from tests.distribution.query import (
    CTE,
    DELETE,
    INSERT,
    MERGE,
    SELECT,
    SUBQUERY,
    UPDATE,
    Query,
    Term,
)

CALLS = ("FUNCEXPR", "OPEXPR", "DISTINCTEXPR", "SCALARARRAYOPEXPR", "AGGREF", "WINDOWFUNC")


def classes(pairs: list[tuple[Term, Term]]) -> dict[Term, Term]:
    """Term → the one that stands for all that are equal to it."""
    leader: dict[Term, Term] = {}

    def find(term: Term) -> Term:
        while leader.setdefault(term, term) != term:
            term = leader[term]
        return term

    for one, other in pairs:
        leader[find(one)] = find(other)
    return {term: find(term) for term in leader}


def unbound(query: Query) -> set[str]:
    """Tables of a statement that are not bound to `$1` on their own level."""
    loose = set()
    for level in query.levels():
        own = classes(list(level.equalities()))
        account = own.get(("param", 1))
        loose |= {
            level.known.tables[r] for r, term in level.ties() if own.get(term) is None
            or own.get(term) != account
        }  # fmt: skip
    return loose


def is_connected(query: Query) -> bool:
    """Whether all distributed tables of a statement hang together by their columns, or those of
    each arm of a UNION."""
    if query.tree.node("setOperations"):
        return all(is_connected(arm) for arm in query.within.values())
    together = classes([pair for level in query.levels() for pair in level.equalities()])
    ties = [term for level in query.levels() for _, term in level.ties()]
    return len({together.get(term, term) for term in ties}) <= 1


def groups(query: Query) -> set[str]:
    """Where the tables of a statement lie."""
    return {level.known.group(r) for level in query.levels() for r in level.relations().values()}


def calls(node: Node | None, query: Query) -> set[str]:
    """How volatile the functions below a node are: letters of `provolatile`."""
    found = [] if node is None else [node, *node.within(into="QUERY")]
    numbers = [
        n.number("funcid" if n.kind == "FUNCEXPR" else "opfuncid") for n in found if n.kind in CALLS
    ]
    return {query.known.volatility[n] for n in numbers if n}


def refused(query: Query) -> set[str]:
    """What Citus would say no to, whatever the account."""
    return {what for level in query.levels() for what in _refused_on(level)}


def _refused_on(level: Query) -> Iterator[str]:
    if level.command() == MERGE:
        yield "MERGE"
    if level.known.group(level.target()) not in ("account", "key"):
        return
    conflict = level.tree.node("onConflict")
    for entry in [] if conflict is None else conflict.nodes("onConflictSet"):
        if calls(entry, level) - {"i"}:
            yield "a function that is not immutable in DO UPDATE SET"
        if any(n.kind == "SUBLINK" for n in entry.within()):
            yield "a subquery in DO UPDATE SET"
    if level.command() == INSERT:
        yield from _refused_insert(level)
    if level.command() == UPDATE:
        ties = {term[2] for relation, term in level.ties() if relation == level.target()}
        if ties & {n.number("resno") for n in level.tree.nodes("targetList")}:
            yield "moving a row to another account"
    if level.command() in (UPDATE, DELETE) and "v" in {
        how for n in level.own() for how in calls(n, level)
    }:
        yield "a volatile function in UPDATE or DELETE"


def _refused_insert(level: Query) -> Iterator[str]:
    entries = level.entries().values()
    selects = [e.node("subquery") for e in entries if e.number("rtekind") == SUBQUERY]
    if not selects and any(
        n.kind == "SUBLINK" for e in level.tree.nodes("targetList") for n in e.within()
    ):
        yield "a subquery in VALUES"
    own = {
        relation
        for node in selects
        for inner in level.within[id(node)].levels()
        for relation in inner.relations().values()
    }
    if level.target() in own and level.tree.nodes("returningList"):
        yield "INSERT … SELECT from its own table … RETURNING"


def unmerged(query: Query) -> set[str]:
    """What each node would have to do by itself for each row, of a statement over all accounts.

    Of a subquery that names a column of another level, Citus takes none of it.
    """
    return {
        what
        for level in query.levels()
        if any(n.kind == "VAR" and n.number("varlevelsup") for n in level.own())
        for what, is_there in {
            "LIMIT": level.tree.node("limitCount"),
            "OFFSET": level.tree.node("limitOffset"),
            "an aggregate without GROUP BY": level.tree.text("hasAggs") == "true"
            and not level.tree.nodes("groupClause"),
        }.items()
        if is_there
    }


def reread(query: Query) -> set[str]:
    """Tables that a part of a statement reads after another part has changed them.

    PostgreSQL shows every part the rows of before; on Citus they run one after the other, each CTE
    that stays one and then the rest.
    """
    changed: set[int] = set()
    found: set[int] = set()
    for part in _parts(query):
        found |= changed & {r for level in part for r in level.read_relations()}
        changed |= {level.target() for level in part} - {0}
    return {query.known.tables[relation] for relation in found}


def too_early(query: Query) -> set[str]:
    """Tables into which a part inserts before another inserts what the rows refer to.

    PostgreSQL looks at the end of the statement, Citus after each part.
    """
    inserts = [
        {level.target() for level in part if level.command() == INSERT} for part in _parts(query)
    ]
    return {
        query.known.tables[child]
        for n, part in enumerate(inserts)
        for later in inserts[n + 1 :]
        for child, parent in query.known.references
        if child in part and parent in later
    }


def _parts(query: Query) -> list[list[Query]]:
    """The levels of each part, in the order in which Citus runs them."""
    nodes = {cte.text("ctename"): cte for cte in query.tree.nodes("cteList")}
    alone = {name for name, cte in nodes.items() if not _is_inlined(cte)}
    parts = [_levels(query.ctes[name], query, alone) for name in nodes if name in alone]
    return [*parts, _levels(query, query, alone)]


def _is_inlined(cte: Node) -> bool:
    """Whether a CTE is put where it is used: it only reads, is used once and may be moved."""
    query = cte.node("ctequery")
    assert query is not None
    once = cte.number("cterefcount") == 1 and cte.text("cterecursive") != "true"
    plain = cte.text("ctematerialized") != "1" and query.text("commandType") == SELECT
    return once and plain


def _levels(start: Query, whole: Query, alone: set[str]) -> list[Query]:
    """A query and those inside it, with the CTEs that are put into it."""
    found = [start]
    for name in _used(start) & whole.ctes.keys() - alone:
        found += _levels(whole.ctes[name], whole, alone)
    for inner in start.within.values():
        if inner not in start.ctes.values():
            found += _levels(inner, whole, alone)
    return found


def _used(level: Query) -> set[str]:
    return {e.text("ctename") for e in level.entries().values() if e.number("rtekind") == CTE}


def locks(query: Query) -> bool:
    """Whether a statement locks the rows that it reads."""
    return any(level.tree.nodes("rowMarks") for level in query.levels())
