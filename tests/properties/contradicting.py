"""What the random walk does with facts that speak against memories.

Not here: other moves (`walk.py`), what must be so afterwards (`dictionary.py`), noticing that a
fact speaks against a memory, which is a model's work: the walk says so itself.
"""

from typing import TYPE_CHECKING

from relayer.memories.opener import Caller
from relayer.record import AGAINST, CONTRADICTION, PENDING, Memory
from relayer.sealed.keys import Namespace
from tests.properties.consolidating import FILLER
from tests.properties.dictionary import Kept, Revision, canonical
from tests.talking import choose

if TYPE_CHECKING:
    from tests.properties.walk import Walk


async def contradict(walk: "Walk", caller: Caller) -> str:
    """A new fact speaks against a memory as it is now, or as somebody read it before."""
    await _read(walk, caller)
    if not walk.read:
        return "nothing"
    old = walk.chance.choice(list(walk.read.values())[-4:])
    text = _other_text(walk, old)
    rule = walk.chance.choice(["newer_wins", "newer_wins", "review"])
    caller = await choose(walk.bench, caller, contradictions=rule)
    confidence = walk.chance.choice(["high", "high", "medium", "low"])
    review = PENDING if confidence == "low" and walk.chance.random() < 0.5 else None
    said_at = walk.chance.choice([None, walk.bench.clock(), *walk.moments[-3:]])
    [stored] = await walk.bench.remember(
        caller, text, namespace=old.namespace, metadata={AGAINST: str(old.id)}, contradicts=old,
        confidence=confidence, review=review, said_at=said_at,
    )  # fmt: skip
    namespace = Namespace(old.namespace)
    fact = (namespace, "fact", canonical(text), None)
    known = walk.must.known(fact)
    assert [stored.id] * stored.duplicate == known
    if known:
        walk.must.memories[stored.id].said_again(None)
        return f"{text!r} again, {stored.id}"
    walk.must.make_room(fact)
    new = Kept(namespace, [Revision(text, (), walk.bench.clock())], None, review=review)
    walk.must.memories[stored.id] = new
    yields = rule == "newer_wins" and confidence != "low"
    yields &= not (confidence == "medium" and old.confidence == "high")
    yields &= said_at is None or said_at >= old.last_said_at
    standing = walk.must.memories.get(old.id)
    if standing is not None:
        walk.must.against.add((stored.id, old.id))
        if standing.superseded_at is None and review is None:
            if yields and not standing.pinned and len(standing.revisions) == old.revision:
                standing.superseded_at, standing.superseded_by = walk.bench.clock(), stored.id
                walk.must.outdate(old.id)
            else:
                new.review = CONTRADICTION
    assert (stored.review, list(stored.contradicts)) == (new.review, [old.id])
    return f"{text!r} as {stored.id} against {old.id}: {rule}, {confidence}, {review}, {said_at}"


async def _read(walk: "Walk", caller: Caller) -> None:
    """Somebody is shown a memory in force, and may come back to it when it has changed."""
    ids = [i for i, kept in walk.must.memories.items() if kept.in_force and kept.upload is None]
    if ids:
        memory_id = walk.chance.choice(ids)
        walk.read.pop(memory_id, None)
        walk.read[memory_id] = await walk.bench.services.memory.get(caller, memory_id)


def _other_text(walk: "Walk", old: Memory) -> str:
    """Something that does not say the same."""
    said = set(canonical(old.text or "").split())
    while True:
        text = walk.text()
        if set(canonical(text).split()) - {FILLER} != said - {FILLER}:
            return text
