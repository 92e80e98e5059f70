"""Whatever two sides do between syncs that may break off anywhere, they come to hold the same.

The replicator and the merge are the client's own; the relayers are `tests/client/sync_model.py`.
"""

import uuid
from collections.abc import Iterator
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memrelay.replication.conflicts import state_of
from memrelay.replication.merging import Revision, State, Version, merge
from tests.client.sync_model import Killed, ModelSide, make_sides, no_agreement, replicate
from tests.properties.drawn import many

TEXTS = ["tea", "coffee", "milk", "water", "juice", "wine", "cocoa", "mead", "cider", "ale"]
WORLDS = 80
DEEDS = 24  # of a world
WEIGHTS = {
    "edit": 8,
    "remember": 3,
    "forget": 1,
    "pinned": 2,
    "review": 1,
    "sync": 3,
    "killed": 2,
    "lose": 1,
}


class World:
    """Two sides, what they agreed on, and what was erased at either."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self.sides = make_sides(draw.randint(-10_000, 10_000))
        self.agreement = no_agreement()
        self.erased: set[str] = set()
        self.conflicts = 0
        self._made = 0

    def act(self, what: str) -> None:
        """Do one thing at either side, or between both."""
        if what in {"sync", "killed"}:
            self.sync(None if what == "sync" else self._draw.randint(0, 5))
        elif what == "lose":
            self.agreement = no_agreement()
        else:
            self._change(self._draw.choice(self.sides), what)

    def _change(self, side: ModelSide, what: str) -> None:
        text = self._draw.choice(TEXTS)
        is_new = text not in self.texts(side)  # else a relayer says that it is known
        if what == "remember" and is_new:
            self._made += 1
            return side.remember(str(uuid.UUID(int=self._made << 64 | 4 << 76 | 2 << 62)), text)
        known = sorted(i for i, row in side.rows.items() if row["revision_of"] is None)
        if not known or what == "remember":
            return None
        memory = self._draw.choice(known)
        if what == "forget":
            self.erased.add(memory)
            side.forget(memory)
        elif what == "pinned":
            side.decide(memory, pinned=self._draw.random() < 0.5)
        elif what == "review":
            side.decide(memory, review=self._draw.choice([None, "rejected"]))
        elif is_new and side.rows[memory]["superseded_at"] is None:
            side.edit(memory, text)
        return None

    def sync(self, left: int | None = None) -> None:
        """Sync; the client is killed after so many requests that change something."""
        self.sides[0].left = self.sides[1].left = left
        try:
            outcome = replicate(self.sides, self.agreement)
        except Killed:
            return
        finally:
            self.sides[0].left = self.sides[1].left = None
        assert outcome.unsettled == {}
        self.conflicts += len(outcome.conflicts)

    def living(self) -> set[str]:
        """Return what is in force at either side, of what nobody erased."""
        said = [pair for side in self.sides for pair in self.said(side, living=True)]
        return {text for i, text in said if i not in self.erased}

    def texts(self, side: ModelSide) -> set[str]:
        return {text for _, text in self.said(side, living=True)}

    def said(self, side: ModelSide, *, living: bool = False) -> Iterator[tuple[str, str]]:
        for row in list(side.rows.values()):
            record = side.opener.open(row)
            assert record is not None
            stands = row["superseded_at"] is None and row["revision_of"] is None
            if stands or not living:
                yield row["revision_of"] or row["id"], record["text"]


def held(side: ModelSide) -> dict[str, tuple[Any, ...]]:
    return {
        i: (side.opener.read_revision(row).digest, row["revision"], state_of(row))
        for i, row in side.rows.items()
        if row["revision_of"] is None
    }


def test_both_come_to_hold_the_same_and_lose_nothing() -> None:
    conflicts = 0
    for seed in range(WORLDS):
        draw = Random(seed)
        world = World(draw)
        world.act("remember")
        for what in draw.choices([*WEIGHTS], [*WEIGHTS.values()], k=DEEDS):
            world.act(what)
        before = world.living()
        world.sync()
        here, there = world.sides
        assert held(here) == held(there), seed
        assert not world.erased & held(here).keys(), seed
        for side in world.sides:
            assert before <= {text for _, text in world.said(side)}, seed
        receipts = (len(here.log), len(there.log))
        world.sync()
        world.act("lose")
        world.sync()
        assert (len(here.log), len(there.log)) == receipts, seed
        conflicts += world.conflicts
    assert conflicts > WORLDS / 5  # else the worlds are too peaceful to show anything


moments = st.none() | st.integers(0, 3)
states = st.builds(
    State,
    pinned=st.booleans(),
    review=st.sampled_from([None, "pending", "rejected", "contradiction"]),
    stale=st.booleans(),
    superseded_ms=moments,
    superseded_by=st.none() | st.sampled_from(["a", "c"]),
    merged=st.booleans(),
    expires_ms=moments,
    default_life=st.booleans(),
)
revisions = st.builds(
    Revision,
    number=st.integers(1, 4),
    blob_id=st.sampled_from(["x", "y", "z"]),
    written_ms=st.integers(0, 3),
    digest=st.none() | st.sampled_from(["1", "2", "3"]),
    resolves=st.frozensets(st.sampled_from(["1", "2", "3"]), max_size=2),
)
versions = st.builds(
    lambda found, state, decided_ms: Version(
        id="b", revisions={one.number: one for one in found}, state=state, decided_ms=decided_ms
    ),
    st.lists(revisions, min_size=1, max_size=4),
    states,
    moments,
)


@many
@given(versions, versions)
def test_who_is_called_first_decides_nothing(one: Version, other: Version) -> None:
    forth, back = merge(one, other), merge(other, one)
    assert forth.state == back.state
    assert forth.number == back.number
    assert (forth.lagging is None) == (back.lagging is None)
    if forth.lagging is not None:
        assert forth.lagging == 1 - unwrapped(back.lagging)
    if forth.winner is not None and one.current != other.current:
        ranks = [(v.current.written_ms, v.current.digest or "", v.current.blob_id)
                 for v in (one, other)]  # fmt: skip
        assert forth.winner == 1 - unwrapped(back.winner) or ranks[0] == ranks[1]


def unwrapped(side: int | None) -> int:
    assert side is not None
    return side
