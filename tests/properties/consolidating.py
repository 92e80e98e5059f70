"""What the random walk does with consolidations: whole runs, and taking them back.

Not here: other moves (`walk.py`), what must be so afterwards (`dictionary.py`).

- Which of what may be merged or summarised is so is for the product to say: a run's own list says
  it. That it was allowed to, and that nothing else changed, is checked.
"""

import uuid
from typing import TYPE_CHECKING

from relayer.database import runs as rows
from relayer.memories.opener import Caller
from relayer.sealed.keys import Namespace
from tests.consolidating import consolidated, listed
from tests.properties.dictionary import Dictionary, Kept, Revision, Run, canonical
from tests.services import OTHER, TEAM

if TYPE_CHECKING:
    from tests.properties.walk import Walk

FILLER = "really"


async def consolidate(walk: "Walk", caller: Caller) -> str:
    """A whole run; another one right after it has nothing to do."""
    namespace = walk.chance.choice([TEAM, OTHER])
    if not any(kept.namespace == namespace for kept in walk.must.memories.values()):
        return "nothing"
    run, done = await consolidated(walk.bench, caller, namespace)
    for action in done:
        match action["action"]:
            case rows.MERGE:
                _merge(walk, namespace, action["memory_id"], *action["other_ids"])
            case rows.STALE:
                _make_stale(walk.must.memories[action["memory_id"]], namespace)
            case rows.SUMMARY:
                await _summarise(walk, caller, action["memory_id"], action["other_ids"])
            case other:
                raise AssertionError(f"nobody did anything thrice, and yet: {other}")
    _, nothing = await consolidated(walk.bench, caller, namespace)
    assert nothing == []
    acts = [(action["action"], action["memory_id"], action["other_ids"]) for action in done]
    if acts:  # others are forgotten in time
        walk.must.runs.append(Run(run["run_id"], walk.bench.clock(), acts))
    return f"{namespace}: {[action['action'] for action in done]}"


def _merge(walk: "Walk", namespace: Namespace, kept_id: uuid.UUID, other_id: uuid.UUID) -> None:
    must = walk.must
    kept, other = must.memories[kept_id], must.memories[other_id]
    assert (kept.in_force, other.in_force) == (True, True)
    assert kept.namespace == other.namespace == namespace
    assert _content(kept) == _content(other)
    assert {*other.now.tags} <= {*kept.now.tags}
    assert not other.pinned
    kept_end, other_end = must.end(kept), must.end(other)
    assert kept_end is None or (other_end is not None and kept_end >= other_end)
    other.superseded_at, other.superseded_by = walk.bench.clock(), kept_id
    kept.seen += other.seen
    must.merged.add((kept_id, other_id))


def _content(kept: Kept) -> tuple[object, ...]:
    said = [word for word in canonical(str(kept.now.text)).casefold().split() if word != FILLER]
    return kept.kind, said, kept.happened


def _make_stale(kept: Kept, namespace: Namespace) -> None:
    assert kept.in_force
    assert (kept.namespace, kept.pinned, kept.stale) == (namespace, False, False)
    kept.stale = True


async def _summarise(
    walk: "Walk", caller: Caller, memory_id: uuid.UUID, source_ids: list[uuid.UUID]
) -> None:
    made = await walk.bench.services.memory.get(caller, memory_id)
    sources = [walk.must.memories[source_id] for source_id in source_ids]
    assert all(kept.in_force and kept.kind == "event" for kept in sources)
    assert {kept.namespace for kept in sources} == {made.namespace}
    tags = set.intersection(*({*kept.now.tags} for kept in sources))
    happened = max(kept.happened for kept in sources if kept.happened is not None)
    assert ({*made.tags}, made.event_time, made.kind) == (tags, happened, "summary")
    said = Revision(made.text, tuple(made.tags), walk.bench.clock())
    walk.must.memories[memory_id] = Kept(
        Namespace(made.namespace), [said], None, kind="summary", happened=happened,
        made_of=frozenset(source_ids),
    )  # fmt: skip


async def undo(walk: "Walk", caller: Caller) -> str:
    """Take one run back, as far as nobody changed since what it did."""
    runs = walk.must.runs
    if not runs or walk.between_epochs:
        return "nothing"
    run = walk.chance.choice(runs)
    undone = await walk.bench.services.runs.undo(caller.access, run.id)
    _, done = await listed(walk.bench, caller, run.id)
    back = [_take_back(walk.must, run, *act) for act in reversed(run.done)]
    assert [(action["memory_id"], action["undone"]) for action in reversed(done)] == [
        (memory_id, rows.UNDONE if taken else rows.SKIPPED)
        for (_, memory_id, _), taken in zip(reversed(run.done), back, strict=True)
    ]
    assert (undone.undone, undone.skipped) == (sum(back), len(back) - sum(back))
    runs.remove(run)
    return f"{run.id}: {back}"


def _take_back(
    must: Dictionary, run: Run, action: str, memory_id: uuid.UUID, others: list[uuid.UUID]
) -> bool:
    kept = must.memories.get(memory_id)
    if kept is None or kept.now.since > run.at:
        return False
    match action:
        case rows.MERGE:
            [other_id] = others
            other = must.memories.get(other_id)
            if other is None or other.superseded_by != memory_id:
                return False
            if not must.is_still_said(memory_id) or not must.make_room(other.fact):
                return False
            must.come_back(other_id)
        case rows.STALE:
            if not kept.stale:
                return False
            kept.stale = False
        case _:
            if kept.review is not None or kept.superseded_at is not None or kept.is_own:
                return False
            must.erase(memory_id)
    return True
