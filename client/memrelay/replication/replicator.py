"""The order of steps in which two relayers come into step.

It does not own what changed or is stored (`side.py`), what becomes of a memory that both have
otherwise (`merging.py`), or what both agreed on last (`agreement.py`).

- Every step may be repeated: what is there already stays so. So a sync that broke off is begun
  again, and nothing is done twice.
- What both agreed on moves only behind a pass that was carried out whole.
- Erasures go first. Then come newer revisions, before new memories: what a newer revision says no
  longer may be said by a new memory.

Source: SPEC.md §17.6.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from memrelay.errors import Invalid, UntrustedRelayer
from memrelay.replication.agreement import START, Agreement, Pair
from memrelay.replication.conflicts import (
    make_tombstone,
    name_earlier,
    state_of,
    state_record,
    with_state,
)
from memrelay.replication.merging import Merge, Version, merge
from memrelay.replication.side import Changes, Side
from memrelay.rows import memory_of, pages_of, whole_batches
from memrelay.sealed.archive import Record
from memrelay.verification import Item

PASSES_MAX = 5  # the second finds nothing, unless somebody writes meanwhile
_MERGED_AT_ONCE = 50  # memories of which all revisions of both sides are held
_READ_BY_ID_MAX = 100  # changed memories; more are compared by name first

_REASONS = {"refused": "refused it", "differs": "has another revision by now"}

Progress = Callable[[int], None]
Sides = tuple[Side, Side]


@dataclass
class Outcome:
    """The outcome of a sync: for either side, how much of what it took.

    Attributes:
        taken: what each side took: `new` memories, `revisions` of known ones, `erased`, `states`.
        conflicts: ids of memories of which both edits were kept.
        unsettled: id → why it could not be brought into step.
        passes: how often both were compared.
        ends: how far the chain of each was read.
    """

    taken: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))
    conflicts: list[str] = field(default_factory=list)
    unsettled: dict[str, str] = field(default_factory=dict)
    passes: int = 0
    ends: Pair = (START, START)

    @property
    def count(self) -> int:
        """How much was taken at both sides together."""
        return sum(self.taken[0].values()) + sum(self.taken[1].values())


class Replicator:
    """Brings namespaces of an account at two relayers into step."""

    def __init__(
        self,
        sides: Sides,
        agreement: Agreement,
        *,
        progress: Progress = lambda number: None,
        is_dry: bool = False,
    ) -> None:
        self._sides = sides
        self._agreement = agreement
        self._progress = progress
        self._is_dry = is_dry
        self._outcome = Outcome()

    def run(self, names: Iterable[str] | None = None) -> Outcome:
        """Bring these namespaces into step, all by default; return what came of it.

        Raises:
            ServerError, TransportError: a relayer refused or was not reached; what came before
                stays, and the next sync goes on.
            UntrustedRelayer: a relayer's history does not hold.
        """
        chosen = frozenset(names if names is not None else self._list_namespaces())
        self._outcome = Outcome()
        for _ in range(1 if self._is_dry else PASSES_MAX):
            before = self._outcome.count
            self._outcome.unsettled.clear()
            self._outcome.ends = self._pass(chosen)
            self._outcome.passes += 1
            if not self._is_dry:
                self._agreement.keep(chosen, self._outcome.ends)
            if self._outcome.count == before:
                break
        return self._outcome

    def _list_namespaces(self) -> set[str]:
        return set(self._sides[0].namespaces) | set(self._sides[1].namespaces)

    def _pass(self, names: frozenset[str]) -> Pair:
        """Compare both once, and bring each what it lacks; return how far the chains were read."""
        here, there = self._sides
        begin = self._agreement.begin(names)
        changes = (self._read(0, begin, names), self._read(1, begin, names))
        stored = self._compare(names, changes)
        self._erase(changes, stored)
        gone = changes[0].erased.keys() | changes[1].erased.keys()
        ids = (changes[0].ids | changes[1].ids) - gone
        if stored is None:
            found = (here.read_memories(sorted(ids)), there.read_memories(sorted(ids)))
            both = sorted(found[0].keys() & found[1].keys())
            rest = ids - found[0].keys() - found[1].keys()
            self._merge_all(both, changes, found)
            for n in (0, 1):
                lacking = [found[n][i] for i in sorted(found[n].keys() - found[1 - n].keys())]
                self._copy(n, lacking, rest)
        else:
            ids |= (stored[0].keys() | stored[1].keys()) - gone
            decided = changes[0].decided.keys() | changes[1].decided.keys()
            self._merge_all(_list_differing(stored, ids, decided), changes)
            for n in (0, 1):
                self._copy_stored(n, stored, ids)
        return changes[0].end, changes[1].end

    # What there is to do

    def _read(self, n: int, begin: Pair, names: frozenset[str]) -> Changes:
        changes = self._sides[n].read_changes(begin[n], names)
        if changes is None:
            self._agreement.restart(n)
            changes = self._sides[n].read_changes(START, names)
        if changes is None:
            raise UntrustedRelayer("rollback", f"{self._sides[n].url} withholds receipts.")
        if changes.is_rebuilt:
            for stone in self._sides[n].tombstones():
                if stone["namespace"] in names or stone["namespace"] is None:
                    changes.erased.setdefault(stone["id"], stone)
        return changes

    def _compare(
        self, names: frozenset[str], changes: tuple[Changes, Changes]
    ) -> tuple[dict[str, list[Item]], dict[str, list[Item]]] | None:
        """Return what both have, by name; None where few changed, which are read themselves."""
        few = len(changes[0].ids | changes[1].ids) <= _READ_BY_ID_MAX
        if few and not (changes[0].is_whole or changes[1].is_whole):
            return None
        return self._sides[0].inventory(names), self._sides[1].inventory(names)

    def _erase(
        self,
        changes: tuple[Changes, Changes],
        stored: tuple[dict[str, list[Item]], dict[str, list[Item]]] | None,
    ) -> None:
        """Erase at each what was erased at the other."""
        for n in (0, 1):
            theirs, ours = changes[1 - n].erased, changes[n].erased
            stones = [stone for i, stone in theirs.items() if i not in ours]
            if stored is not None:  # else it never was here, or nobody knows
                stones = [stone for stone in stones if _is_stored(stone, stored[n])]
            self._erase_at(n, self._sides[n].find_erasable(stones))

    def _erase_at(self, n: int, stones: Sequence[Record]) -> None:
        if not self._is_dry:
            self._sides[n].bring_tombstones(stones)
        self._outcome.taken[n]["erased"] += len(stones)

    # Memories that both have

    def _merge_all(
        self,
        ids: Sequence[str],
        changes: tuple[Changes, Changes],
        found: tuple[Mapping[str, list[Record]], Mapping[str, list[Record]]] | None = None,
    ) -> None:
        for part in pages_of(ids, _MERGED_AT_ONCE):
            rows = found or (
                self._sides[0].read_memories(part),
                self._sides[1].read_memories(part),
            )
            self._merge_some([i for i in part if i in rows[0] and i in rows[1]], changes, rows)

    def _merge_some(
        self,
        ids: Iterable[str],
        changes: tuple[Changes, Changes],
        rows: tuple[Mapping[str, list[Record]], Mapping[str, list[Record]]],
    ) -> None:
        groups: tuple[list[list[Record]], list[list[Record]]] = ([], [])
        states: tuple[list[Record], list[Record]] = ([], [])
        for memory in ids:
            pair = (rows[0][memory], rows[1][memory])
            versions = (
                self._version(0, pair[0], changes[0]),
                self._version(1, pair[1], changes[1]),
            )
            merged = merge(*versions)
            if merged.winner is not None:
                self._resolve(merged, pair, groups)
                continue
            for n in (0, 1):
                group = _list_missing(pair[1 - n], pair[n], is_behind=merged.lagging == n)
                if merged.lagging == n:
                    group[0] = with_state(group[0], merged.state)
                elif versions[n].state != merged.state:
                    number = versions[n].current.number
                    states[n].append(state_record(memory, number, merged.state))
                if group:
                    groups[n].append(group)
        for n in (0, 1):
            self._bring(n, "revisions", groups[n])
            self._settle(n, states[n])

    def _version(self, n: int, rows: Sequence[Record], changes: Changes) -> Version:
        opener = self._sides[n].opener
        revisions = [opener.read_revision(row) for row in rows]
        return Version(
            id=rows[0]["id"],
            revisions={one.number: one for one in revisions},
            state=state_of(rows[0]),
            decided_ms=changes.decided.get(rows[0]["id"]),
        )

    def _resolve(
        self,
        merged: Merge,
        pair: tuple[list[Record], list[Record]],
        groups: tuple[list[list[Record]], list[list[Record]]],
    ) -> None:
        """Let both sides go on with one revision, and keep the other edit as a memory beside."""
        assert merged.winner is not None
        stands, gives_way = pair[merged.winner][0], pair[1 - merged.winner][0]
        opener = self._sides[merged.winner].opener
        try:
            revision, aside = opener.resolve(stands, gives_way, merged.number)
        except Invalid as error:
            self._outcome.unsettled[stands["id"]] = str(error)
            return
        self._outcome.conflicts.append(stands["id"])
        for n in (0, 1):
            # What is current there comes along as an earlier revision: else it would be passed over
            # unseen, and the relayer takes nothing in.
            before = _as_earlier(pair[n][0])
            groups[n].append([with_state(revision, merged.state), before, aside])

    def _settle(self, n: int, states: Sequence[Record]) -> None:
        if self._is_dry:
            self._outcome.taken[n]["states"] += len(states)
            return
        outcomes = self._sides[n].bring_states(states)
        self._note(n, "states", outcomes)

    # Memories that one lacks

    def _copy(self, n: int, groups: Sequence[list[Record]], rest: Collection[str]) -> None:
        """Bring the other side memories of this one, and those of `rest` that are its turns."""
        turns = [[row] for row in self._sides[n].read_turns(sorted(rest))]
        self._bring(1 - n, "new", [*turns, *groups])

    def _copy_stored(
        self,
        n: int,
        stored: tuple[dict[str, list[Item]], dict[str, list[Item]]],
        ids: Collection[str],
    ) -> None:
        side, ours, theirs = self._sides[n], stored[n], stored[1 - n]
        lacking = {i: ours[i] for i in ids if i in ours and i not in theirs}
        turns = sorted(i for i, items in lacking.items() if items[0].type == "episode")
        single = {i for i, items in lacking.items() if len(items) == 1}.difference(turns)
        several = sorted(lacking.keys() - single - set(turns))
        self._bring(1 - n, "new", ([row] for row in side.read_turns(turns)))
        if single:
            self._bring(1 - n, "new", ([row] for row in side.read_single(frozenset(single))))
        for part in pages_of(several, _MERGED_AT_ONCE):
            self._bring(1 - n, "new", side.read_memories(part).values())

    def _bring(self, n: int, what: str, groups: Iterable[list[Record]]) -> None:
        """Bring a side memories with their earlier revisions."""
        side, other = self._sides[n], self._sides[1 - n]
        for batch in whole_batches(_only_sound(groups, self._outcome)):
            if self._is_dry:
                self._outcome.taken[n][what] += sum(not r.get("revision_of") for r in batch)
                continue
            side.bring_namespaces({row["namespace"] for row in batch}, other)
            outcomes = side.bring_rows(batch)
            memories = {row["id"]: memory_of(row) for row in batch}
            current = {i: status for i, status in outcomes.items() if memories[i] == i}
            self._note(n, what, current)
            self._erase_late(1 - n, batch, outcomes)
            self._progress(self._outcome.count)

    def _erase_late(self, n: int, batch: Sequence[Record], outcomes: Mapping[str, str]) -> None:
        """Erase at one side what the other one turned out to have erased, whenever that was."""
        rows: dict[str, list[Record]] = {}
        for row in batch:
            if outcomes[row["id"]] == "erased":
                rows.setdefault(memory_of(row), []).append(row)
        self._erase_at(n, [make_tombstone(found) for found in rows.values()])

    def _note(self, n: int, what: str, outcomes: Mapping[str, str]) -> None:
        for item, status in outcomes.items():
            self._outcome.taken[n][what] += status == "imported"
            if status in _REASONS:
                self._outcome.unsettled[item] = f"{self._sides[n].url} {_REASONS[status]}"


def _only_sound(groups: Iterable[list[Record]], outcome: Outcome) -> Iterator[list[Record]]:
    """Yield what has its bytes; note what a relayer lost."""
    for group in groups:
        sound = [row for row in group if row["blob"] is not None]
        if group[0]["blob"] is None:
            outcome.unsettled[memory_of(group[0])] = "its relayer has no bytes for it"
        elif sound:
            yield sound


def _is_stored(stone: Record, stored: Mapping[str, list[Item]]) -> bool:
    if stone["id"] in stored:
        return True
    blobs = set(stone["blob_ids"])  # a turn with an id of version 8 is known by its blob
    return any(item.blob_id in blobs for items in stored.values() for item in items)


def _list_differing(
    stored: tuple[dict[str, list[Item]], dict[str, list[Item]]],
    ids: Iterable[str],
    decided: Collection[str],
) -> list[str]:
    """Return the memories that both have and that may not be alike at both."""
    return sorted(
        i
        for i in ids
        if i in stored[0]
        and i in stored[1]
        and stored[0][i][0].type != "episode"
        and (i in decided or _compared(stored[0][i]) != _compared(stored[1][i]))
    )


def _compared(items: Iterable[Item]) -> set[tuple[object, ...]]:
    """Return what is compared of a memory's revisions by name; of earlier ones, no state."""
    return {
        (item.revision, item.blob_id, *(() if item.earlier else item.state.values()))
        for item in items
    }


def _list_missing(
    source: Sequence[Record], there: Sequence[Record], *, is_behind: bool
) -> list[Record]:
    """Return the rows of a memory that a side lacks of another one's, the newest first.

    One that is behind also gets its own current revision, as the earlier one that it is from then
    on: that is what proves to its relayer that nothing is passed over.
    """
    has = {row["revision"] for row in there}
    if is_behind:
        between = [row for row in source[1:] if row["revision"] not in has]
        # Right behind it: of many revisions, the first request has to have it.
        return [source[0], _as_earlier(there[0]), *between]
    current = there[0]["revision"]
    return [row for row in source if row["revision"] not in has and row["revision"] < current]


def _as_earlier(row: Record) -> Record:
    """Return a memory's current revision as the earlier one that it becomes."""
    return row | {
        "id": name_earlier(row["id"], row["revision"]),
        "revision_of": row["id"],
    }
