"""A short run of what `make torture` does at length, and that its checker sees what is wrong."""

from pathlib import Path

import pytest

from tests.torture.checker import Said, wrong
from tests.torture.ledger import Entry, Fate
from tests.torture.run import run

SEED = 8  # clock, database, a blob and both endpoints
KILLS = 10
SECONDS_MAX = 600.0  # a quiet machine needs a tenth of that

ID, OTHER_ID = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
TEXT = "The parcel named bakure arrived."
THERE = Said(ID, "desk", TEXT)


@pytest.mark.long
async def test_ten_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    outcome = await run(
        tmp_path / "ground", seed=SEED, kills=KILLS, seconds_max=SECONDS_MAX, short=True
    )
    assert outcome.problems == {}
    assert outcome.kills >= KILLS
    assert outcome.acknowledged["memories"] > 0
    assert outcome.reads["checked"] > 0


@pytest.mark.parametrize(
    ("fate", "found", "dead", "problems"),
    [
        (Fate.STORED, [THERE], set(), []),
        (Fate.STORED, [], set(), ["it is there 0 times"]),
        (Fate.STORED, [THERE, Said(OTHER_ID, "desk", TEXT)], set(), ["it is there 2 times"]),
        (Fate.STORED, [Said(OTHER_ID, "desk", TEXT)], set(), ["it has another id"]),
        (Fate.STORED, [Said(ID, "desk", "bakure")], set(), ["it says something else"]),
        (Fate.WAITING, [], set(), ["it is there 0 times"]),
        (Fate.ABANDONED, [], set(), []),
        (Fate.ABANDONED, [THERE], set(), []),
        (Fate.ABANDONED, [THERE, Said(OTHER_ID, "desk", TEXT)], set(), ["it is doubled"]),
        (Fate.ERASING, [THERE], set(), []),
        (Fate.ERASED, [], {ID}, []),
        (Fate.ERASED, [], set(), ["no tombstone"]),
        (Fate.ERASED, [THERE], {ID}, ["it is there"]),
    ],
)
def test_the_checker_sees_what_is_wrong(
    fate: Fate, found: list[Said], dead: set[str], problems: list[str]
) -> None:
    entry = Entry("bakure", "desk", {TEXT}, fate=fate, id=ID)
    assert wrong(entry, found, dead) == problems
