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
CHOICES = ("CASEEXPR", "COALESCEEXPR")


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
    return {_volatility(n, query) for n in found} - {""}


def refused(query: Query) -> set[str]:
    """What Citus would say no to, whatever the account."""
    return {what for level in query.levels() for what in _refused_on(level)}


def _refused_on(level: Query) -> Iterator[str]:
    if level.command() == MERGE:
        yield "MERGE"
    # Citus reads it back as a function's result, which needs columns, wherever it runs it apart.
    if level.command() == SELECT and not level.outputs():
        yield "a query without columns"
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
    if level.command() in (UPDATE, DELETE):
        yield from _refused_calls(level)


def _refused_calls(level: Query) -> Iterator[str]:
    """What an UPDATE or DELETE may not call: Citus computes it once, before it sees a row."""
    for node in level.own():
        how = _volatility(node, level)
        below = list(node.within(into="QUERY"))
        if how == "v":
            yield "a volatile function in UPDATE or DELETE"
        if how == "s" and any(n.kind == "VAR" for n in below):
            yield "a stable function of a column in UPDATE or DELETE"
        if node.kind in CHOICES and {_volatility(n, level) for n in below} & {"s", "v"}:
            yield "a function that is not immutable in CASE or COALESCE of UPDATE or DELETE"


def _volatility(node: Node, level: Query) -> str:
    """How volatile the function is that a node calls, as a letter of `provolatile`; "" for none."""
    if node.kind == "COERCEVIAIO":  # calls what writes the one type and reads the other
        arg = node.node("arg")
        types = {node.number("resulttype"), 0 if arg is None else _type(arg)}
        return max((level.known.conversions.get(t, "i") for t in types), key="isv".index)
    number = node.number("funcid" if node.kind == "FUNCEXPR" else "opfuncid")
    return level.known.volatility[number] if node.kind in CALLS and number else ""


def _type(node: Node) -> int:
    """The type of an expression, of those kinds that are converted to and from text here."""
    members = ("vartype", "paramtype", "funcresulttype", "opresulttype", "resulttype", "consttype")
    return next((node.number(member) for member in members if node.text(member)), 0)


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
