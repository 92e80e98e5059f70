"""What a sync does where a relayer or a client broke off, shown on relayers in memory."""

import pytest

from tests.client.sync_model import Killed, ModelSide, make_sides, no_agreement, replicate

MEMORY = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def sides() -> tuple[ModelSide, ModelSide]:
    """Two relayers that have one memory."""
    sides = make_sides()
    sides[0].remember(MEMORY, "tea")
    replicate(sides, no_agreement())
    return sides


def test_an_erasure_that_no_receipt_tells_of_wins_where_the_row_arrives(
    sides: tuple[ModelSide, ModelSide],
) -> None:
    """A third relayer told of it, or the chain was rebuilt since."""
    here, there = sides
    there.rows.clear()
    there.gone.add(MEMORY)
    there.log.clear()
    outcome = replicate(sides, no_agreement())
    assert (here.rows, there.rows) == ({}, {})
    assert outcome.taken[0]["erased"] == 1


def test_a_conflict_that_was_resolved_at_one_side_is_not_resolved_again(
    sides: tuple[ModelSide, ModelSide],
) -> None:
    here, there = sides
    here.edit(MEMORY, "milk")
    there.edit(MEMORY, "juice")
    agreement = no_agreement()
    there.left = 0  # the client is killed between the two
    with pytest.raises(Killed):
        replicate(sides, agreement)
    there.left = None
    assert here.rows[MEMORY]["revision"] == 3
    assert there.rows[MEMORY]["revision"] == 2
    assert replicate(sides, agreement).conflicts == []
    assert [side.rows[MEMORY]["blob_id"] for side in sides] == [here.rows[MEMORY]["blob_id"]] * 2
    assert there.rows[MEMORY]["revision"] == 3
    assert len([row for row in there.rows.values() if row["review"] == "contradiction"]) == 1


def test_a_pin_at_one_side_outlives_an_edit_at_the_other(
    sides: tuple[ModelSide, ModelSide],
) -> None:
    here, there = sides
    agreement = no_agreement()
    replicate(sides, agreement)
    here.edit(MEMORY, "milk")
    there.decide(MEMORY, pinned=True)
    replicate(sides, agreement)
    for side in sides:
        assert (side.rows[MEMORY]["revision"], side.rows[MEMORY]["pinned"]) == (2, True)


@pytest.mark.parametrize("skew_ms", [-3_600_000, 3_600_000])
def test_what_one_side_decided_last_counts_without_the_file(skew_ms: int) -> None:
    """Also between clocks that are an hour apart."""
    here, there = make_sides(skew_ms)
    here.remember(MEMORY, "tea")
    replicate((here, there), no_agreement())
    here.decide(MEMORY, pinned=True)
    replicate((here, there), no_agreement())
    here.decide(MEMORY, pinned=False)
    replicate((here, there), no_agreement())
    assert [side.rows[MEMORY]["pinned"] for side in (here, there)] == [False, False]


def test_more_revisions_than_a_request_has_come_in_parts(
    sides: tuple[ModelSide, ModelSide], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrelay.rows.PAGE_ITEMS_MAX", 4)
    here, there = sides
    for number in range(9):
        here.edit(MEMORY, f"tea {number}")
    replicate(sides, no_agreement())
    assert sorted(row["revision"] for row in there.rows.values()) == list(range(1, 11))
    assert there.rows[MEMORY]["blob_id"] == here.rows[MEMORY]["blob_id"]
