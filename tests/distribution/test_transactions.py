"""What a transaction over several nodes, or over a node and the queue, needs of its caller.

The queue is on the coordinator alone. A transaction that writes one account's rows one by one is
committed there after the node has committed: a job may be lost whose rows are stored. A statement
with `unnest` makes it one commit of all; for the others, and for whatever is lost in between, a
sweep finds the work again.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path

import relayer
from relayer.database import queue
from relayer.jobs import Worker
from relayer.sweeper import Sweeper
from tests.statements import STATEMENTS

KINDS = {n for n, v in vars(queue).items() if n.isupper() and isinstance(v, str) and n[0] != "_"}
# Found again as something else: memories without vectors are what reindexing looks for, and blobs
# to be deleted are in a table of their own that housekeeping empties.
FOUND_OTHERWISE = {"EMBED", "DELETE_BLOBS"}


def sources() -> Iterator[tuple[str, str]]:
    """(name, text) of the relayer's modules."""
    package = Path(relayer.__file__).parent
    for path in sorted(package.rglob("*.py")):
        yield str(path.relative_to(package)), path.read_text()


def named(function: object) -> set[str]:
    """The kinds of jobs that a function names."""
    assert inspect.isfunction(function)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)} & KINDS


def test_every_kind_of_job_is_found_again_when_it_is_lost() -> None:
    swept = named(Sweeper.sweep) | named(Sweeper._queue_consolidations)
    assert swept == KINDS - FOUND_OTHERWISE
    assert "empty" in inspect.getsource(Worker._steps)


def test_postings_are_written_by_unnest() -> None:
    """One statement for all words of a request, and with it one commit of node and queue."""
    writing = {name for name, text in STATEMENTS.items() if "INSERT INTO postings" in text}
    assert {"write_statement._WRITE", "revisions._REVISE"} <= writing
    assert {name for name in writing if "unnest(" not in STATEMENTS[name]} == set()


def test_nothing_that_a_request_stores_is_written_row_by_row() -> None:
    """On a cluster that took five to seven times as long as on one machine.

    A run of consolidation does so: what its actions are about are lists of different lengths.
    """
    found = [name for name, text in sources() if "executemany(" in text]
    assert found == ["database/runs.py"]


def test_no_error_is_known_by_the_name_of_a_constraint() -> None:
    """A shard's number is part of the name there."""
    assert [name for name, text in sources() if "constraint_name" in text] == []
