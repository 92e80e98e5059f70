"""The table of refusals: every group of cases, by name.

Not here: the cases themselves, a module a group; who sends them (`test_refusals.py`).
"""

from collections.abc import Mapping, Sequence

from tests.refusals import (
    curve,
    documents,
    founding,
    giving,
    members,
    names,
    queries,
    replays,
    signatures,
    transport,
    unlocks,
)
from tests.refusals.case import Case

GROUPS: Mapping[str, Sequence[Case]] = {
    "transport": transport.CASES,
    "signatures": signatures.CASES,
    "curve": curve.CASES,
    "replays": replays.CASES,
    "documents": documents.CASES,
    "members": members.CASES,
    "queries": queries.CASES,
    "names": names.CASES,
    "unlocks": unlocks.CASES,
    "giving": giving.CASES,
    "founding": founding.CASES,
}
