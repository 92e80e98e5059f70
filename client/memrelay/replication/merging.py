"""Decides what becomes of a memory that two relayers have otherwise; pure.

It does not own reading or writing at either (`side.py`), or how a conflict is sealed
(`conflicts.py`).

- The result does not depend on which of the two is called first: whoever merges decides alike.
- An erasure is none of this: what was erased at one is erased at the other before anything merges.

Source: SPEC.md §17.6.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

# Of reviews that nobody decided on, the stricter holds.
_STRICTNESS = {None: 0, "contradiction": 1, "pending": 2, "rejected": 3}
_FOREVER = 2**63

Side = Literal[0, 1]


@dataclass(frozen=True, kw_only=True)
class State:
    """The state of a memory beside what it says; times in Unix milliseconds."""

    pinned: bool = False
    review: str | None = None
    stale: bool = False
    superseded_ms: int | None = None
    superseded_by: str | None = None
    merged: bool = False
    expires_ms: int | None = None
    default_life: bool = False

    @property
    def rank(self) -> tuple[object, ...]:
        """A total order of states, for two that were decided at once."""
        ended = (self.superseded_ms or 0, self.superseded_by or "", self.merged)
        life = (_life(self), self.default_life)
        return (self.pinned, _STRICTNESS.get(self.review, 0), self.stale, *ended, *life)


@dataclass(frozen=True, kw_only=True)
class Revision:
    """One revision: its number and bytes, when it was written, and a digest of what it says.

    `digest` is None where no key opens it. `resolves` are the digests of what it was made of.
    """

    number: int
    blob_id: str
    written_ms: int
    digest: str | None = None
    resolves: frozenset[str] = frozenset()

    def says(self, other: "Revision | None") -> bool:
        """Return whether both have the same bytes, or say the same."""
        if other is None:
            return False
        return self.blob_id == other.blob_id or (
            self.digest is not None and self.digest == other.digest
        )


@dataclass(frozen=True, kw_only=True)
class Version:
    """A memory as one relayer has it; `decided_ms` is when its state was last decided there.

    Only what was decided since both agreed counts. What came about by a row's arrival is no
    decision.
    """

    id: str
    revisions: Mapping[int, Revision]
    state: State
    decided_ms: int | None = None

    @property
    def current(self) -> Revision:
        """The newest revision."""
        return self.revisions[max(self.revisions)]


@dataclass(frozen=True, kw_only=True)
class Merge:
    """The result for one memory.

    Attributes:
        lagging: the side that takes over the other's newer revision, if one is behind.
        winner: in a conflict of two edits, the side whose edit stands; the other's is kept, too.
        number: in a conflict, the number of the revision that both take.
        state: what is to hold at both.
    """

    state: State
    lagging: Side | None = None
    winner: Side | None = None
    number: int = 0


def merge(one: Version, other: Version) -> Merge:
    """Return what becomes of a memory that both sides have."""
    state = merge_states(one, other)
    mine, its = one.current, other.current
    if mine.number == its.number and mine.says(its):
        return Merge(state=state)
    if mine.number != its.number:
        lagging: Side = 0 if mine.number < its.number else 1
        low, high = (one, other) if lagging == 0 else (other, one)
        if _is_ahead(high, low):
            return Merge(state=_freshen(state, high, low), lagging=lagging)
    winner: Side = 0 if _rank(mine) > _rank(its) else 1
    ahead, behind = (one, other) if winner == 0 else (other, one)
    number = max(mine.number, its.number) + 1
    return Merge(state=_freshen(state, ahead, behind), winner=winner, number=number)


def _is_ahead(high: Version, low: Version) -> bool:
    """Return whether the one with the higher number goes on from what the other has."""
    was = low.current
    later = [r for number, r in high.revisions.items() if number > was.number]
    return (
        was.says(high.revisions.get(was.number))
        or was.says(high.current)
        or any(was.digest in one.resolves for one in later)
    )


def _rank(revision: Revision) -> tuple[int, str, str]:
    return revision.written_ms, revision.digest or "", revision.blob_id


def _freshen(state: State, ahead: Version, behind: Version) -> State:
    """Return the state for a newer revision: how long it lives and holds is said by that one."""
    life = state
    if behind.decided_ms is None or ahead.decided_ms is not None or not behind.state.pinned:
        life = ahead.state
    return _settle(
        replace(
            state,
            stale=ahead.state.stale,
            expires_ms=life.expires_ms,
            default_life=life.default_life,
        )
    )


def merge_states(one: Version, other: Version) -> State:
    """Return the state of a memory at both sides: as it was decided last, else of both together."""
    mine, its = one.state, other.state
    if mine == its:
        return mine
    if one.decided_ms is None and other.decided_ms is None:
        return _settle(_join(one.id, mine, its))
    if one.decided_ms is None or other.decided_ms is None:
        return its if one.decided_ms is None else mine
    newer = (one.decided_ms, mine.rank) > (other.decided_ms, its.rank)
    last = mine if newer else its
    longest = max((mine, its), key=lambda state: (_life(state), not state.default_life))
    return _settle(replace(last, expires_ms=longest.expires_ms, default_life=longest.default_life))


def _join(memory_id: str, mine: State, its: State) -> State:
    """Return the state that follows from two that nobody decided."""
    longest = max((mine, its), key=lambda state: (_life(state), not state.default_life))
    ended = _find_end(memory_id, mine, its)
    return State(
        pinned=mine.pinned or its.pinned,
        review=max((mine.review, its.review), key=lambda word: _STRICTNESS.get(word, 0)),
        stale=mine.stale and its.stale,
        superseded_ms=ended.superseded_ms,
        superseded_by=ended.superseded_by,
        merged=ended.merged,
        expires_ms=longest.expires_ms,
        default_life=longest.default_life,
    )


def _find_end(memory_id: str, mine: State, its: State) -> State:
    """Return which of two states says how the memory was superseded, or that it was not.

    Two memories that say the same arrive as superseded by each other: the one with the lower id
    stays, which is the older one.
    """
    ended = [state for state in (mine, its) if state.superseded_ms is not None]
    if len(ended) != 1:
        return max((mine, its), key=lambda state: state.rank[3:6])
    stands = its if ended[0] is mine else mine
    by = ended[0].superseded_by
    return stands if by is not None and not ended[0].merged and memory_id < by else ended[0]


def _settle(state: State) -> State:
    """Return the state without an end that nobody asked for, if it is pinned."""
    if state.pinned and state.default_life:
        return replace(state, expires_ms=None, default_life=False)
    return state


def _life(state: State) -> int:
    return _FOREVER if state.expires_ms is None else state.expires_ms
