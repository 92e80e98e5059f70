"""A random walk through all that can become of memories, beside a plain dictionary of them.

Not here: the rules (`dictionary.py`), what is compared (`looking.py`), how many walks there
are, and on what (`test_walk.py`).

- Each move is made in the product and in the dictionary; then everything shown is compared.
- Every choice comes from one seeded source: the same seed is the same walk, step by step.
- The clock stands still within a step, and no two steps are at the same second.
- Two processes of the relayer take turns as it happens: neither may miss what the other changed.
"""

import random
import unicodedata
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest

from relayer.database.vectors import forget_versions
from relayer.errors import Conflict, NotFound
from relayer.journal.states import Change
from relayer.memories.deletion import Filter
from relayer.memories.opener import Caller
from relayer.memories.revisions import Edit
from relayer.record import Memory, new_id
from relayer.upkeep.check import check
from relayer.upkeep.rebuild import REBUILT, rebuild_lost
from tests.granting import entrust
from tests.moving import moved
from tests.properties.consolidating import FILLER, consolidate, undo
from tests.properties.contradicting import contradict
from tests.properties.dictionary import TAGS, WHAT, WHO, Dictionary, Kept, Revision, Turn, canonical
from tests.properties.looking import look
from tests.rotator import Rotator
from tests.services import OTHER, TEAM, Bench
from tests.talking import analyze, choose

MINUTE, HOUR, DAY = 60, 3600, 86_400
ROTATIONS_MAX = 3  # each gives everybody all grants again
Move = Callable[["Walk", Caller], Awaitable[str]]


@dataclass
class Walk:
    """A relayer, an owner and the dictionary, and what was done so far."""

    bench: Bench
    rotator: Rotator
    lose: Callable[[Bench], Awaitable[Bench]]
    elsewhere: Callable[[Bench], Awaitable[Bench]]
    chance: random.Random
    replicas: list[Bench] = field(default_factory=list)
    must: Dictionary = field(default_factory=Dictionary)
    moments: list[datetime] = field(default_factory=list)
    read: dict[uuid.UUID, Memory] = field(default_factory=dict)  # as it was then
    done: list[str] = field(default_factory=list)
    between_epochs: bool = False
    asked: bool = False  # to seal everything anew

    def __post_init__(self) -> None:
        self._go_on(self.bench)
        monday = self.bench.clock() - timedelta(days=40 + self.bench.clock().weekday())
        self.past = [monday + timedelta(days=n) for n in range(3)]

    async def step(self) -> None:
        """One more thing happens, and everything is looked at."""
        self.by_any()
        seconds = self.chance.choice([1, 5, MINUTE, MINUTE, HOUR, HOUR, DAY])
        self.moments.append(self.bench.clock() + timedelta(milliseconds=500))
        self.bench.clock.advance(seconds)
        self.must.tick(self.bench.clock())
        [(name, move)] = self.chance.choices(list(MOVES.items()), [w for _, w in WEIGHTS.items()])
        self.done.append(f"{len(self.done)}: +{seconds} s, {name}")
        self.done[-1] += f" {await move(self, await self.caller())}"
        await look(self)

    async def caller(self) -> Caller:
        """The owner's next request, with the keys of every epoch."""
        return await self.rotator.caller(None, TEAM, OTHER, bench=self.bench)

    def one(self, *, living: bool = True) -> uuid.UUID | None:
        """Any memory."""
        ids = [i for i, kept in self.must.memories.items() if not (living and kept.over)]
        return self.chance.choice(ids) if ids else None

    def text(self) -> str:
        """One of few things to say, in one of several spellings."""
        word = self.chance.choice(["", "", f"{FILLER} "])
        said = f"The {self.chance.choice(WHO)} {word}guards the {self.chance.choice(WHAT)}."
        spelt = [said, said.replace(" ", "  "), unicodedata.normalize("NFD", said), f" {said}\n"]
        return self.chance.choice([said, *spelt])

    def tags(self) -> tuple[str, ...]:
        return tuple(t for t in TAGS if self.chance.random() < 0.4)

    def later(self) -> datetime | None:
        """An end for a memory, or none; never one that looks like the default of kind `working`."""
        seconds = self.chance.choice([None, None, MINUTE, HOUR, 3 * DAY + HOUR // 2])
        return None if seconds is None else self.bench.clock() + timedelta(seconds=seconds)

    async def remember(self, caller: Caller) -> str:
        namespace = self.chance.choice([TEAM, TEAM, OTHER])
        text, tags, end = self.text(), self.tags(), self.later()
        kind = self.chance.choice(["fact", "fact", "working", "event"])
        when = self.chance.choice(self.past) if kind == "event" else None
        [stored] = await self.bench.remember(
            caller, text, namespace=namespace, kind=kind, event_time=when, tags=tags, expires_at=end
        )
        fact = (namespace, kind, canonical(text), when)
        known = self.must.known(fact)
        assert [stored.id] * stored.duplicate == known
        if not known:
            self.must.make_room(fact)
            said = Revision(text, tags, self.bench.clock())
            self.must.memories[stored.id] = Kept(namespace, [said], end, kind, when)
            return f"{text!r} as {stored.id}"
        self.must.memories[stored.id].said_again(end)
        return f"{text!r} again, {stored.id}"

    async def upload(self, caller: Caller) -> str:
        """Bytes that a client sealed itself, under a vector of its own."""
        namespace = self.chance.choice([TEAM, OTHER])
        data, vector = self.chance.randbytes(40), np.array([self.chance.gauss() for _ in range(4)])
        memory_id, name = await self.bench.services.manual.remember(caller, namespace, data, vector)
        said = Revision(None, (), self.bench.clock())
        self.must.memories[memory_id] = Kept(namespace, [said], None, upload=name)
        return f"{memory_id}"

    async def talk(self, caller: Caller) -> str:
        """A conversation that one fact is taken from, and that is kept beside it."""
        namespace, what = self.chance.choice([TEAM, OTHER]), self.chance.choice(WHAT)
        text = f"1. user: I prefer {what} chairs."
        text += self.chance.choice(["", "\n\n2. assistant: Noted."])
        caller = await choose(self.bench, caller, keep_turns=True)
        analyzed = await analyze(self.bench, caller, text, namespace=namespace)
        [fact_id] = [*(fact.id for fact in analyzed.facts), *analyzed.reinforced]
        fact = (namespace, "preference", f"I prefer {what} chairs.", None)
        known = self.must.known(fact)
        if known:
            assert known == [fact_id]
            self.must.memories[fact_id].seen += 1
            self.must.memories[fact_id].given_end = None  # it was said without an end
        else:
            self.must.make_room(fact)
            assert [(f.kind, f.text, f.duplicate) for f in analyzed.facts] == [(*fact[1:3], False)]
            said = Revision(fact[2], (), self.bench.clock())
            self.must.memories[fact_id] = Kept(namespace, [said], None, kind="preference")
        same = [
            i
            for i, turn in self.must.turns.items()
            if (turn.namespace, turn.text, turn.over) == (namespace, text, False)
        ]
        assert analyzed.kept is not None
        assert same == [analyzed.kept] * len(same)
        if not same:
            turn = Turn(namespace, text, self.bench.clock(), set(), set())
            self.must.turns[analyzed.kept] = turn
        self.must.turns[analyzed.kept].facts.add(fact_id)
        if not known:
            self.must.turns[analyzed.kept].own.add(fact_id)
        return f"{text!r} as {analyzed.kept}, which says {fact_id}"

    async def edit(self, caller: Caller) -> str:
        memory_id = self.one()
        if memory_id is None:
            return "nothing"
        kept = self.must.memories[memory_id]
        if kept.upload is not None:
            with pytest.raises(Conflict) as refused:
                await self.bench.services.reviser.edit(caller, memory_id, Edit(changes={}))
            assert refused.value.code == "memory.opaque"
            return f"{memory_id} refused: memory.opaque"
        members: dict[str, Any] = {
            "text": self.text(),
            "tags": self.tags(),
            "expires_at": self.later(),
        }
        changes = {k: v for k, v in members.items() if self.chance.random() < 0.6}
        edit = Edit(changes=changes)
        code = "memory.superseded" if kept.superseded_at is not None else None
        after = {"text": kept.now.text, "tags": kept.now.tags, "expires_at": kept.given_end}
        changed = after | changes != after
        after |= changes
        if code is None and changed:
            fact = (kept.namespace, kept.kind, canonical(str(after["text"])), kept.happened)
            alone = self.must.make_room(fact, but=memory_id)
            code = None if alone else "memory.duplicate"
        if code is not None:
            with pytest.raises(Conflict) as refused:
                await self.bench.services.reviser.edit(caller, memory_id, edit)
            assert refused.value.code == code
            return f"{memory_id} refused: {code}"
        edited = await self.bench.services.reviser.edit(caller, memory_id, edit)
        assert (edited.receipt is not None) == changed
        if changed:
            tags = changes.get("tags", kept.now.tags)
            assert isinstance(tags, tuple)
            now = self.bench.clock()
            kept.revisions.append(Revision(str(after["text"]), tags, now))
            kept.stale = False
            kept.given_end = changes.get("expires_at", kept.given_end)
            self.must.outdate(memory_id)
        return f"{memory_id} {changes}"

    async def pin(self, caller: Caller) -> str:
        memory_id = self.one()
        if memory_id is None or not self.comparable(memory_id):
            return "nothing"
        kept = self.must.memories[memory_id]
        kept.pinned = not kept.pinned
        await self._set(caller, memory_id, Change(pinned=kept.pinned))
        # Without its pin it may be older than its namespace keeps anything.
        self.must.tick(self.bench.clock())
        return f"{memory_id} {kept.pinned}"

    async def review(self, caller: Caller) -> str:
        memory_id = self.one()
        if memory_id is None or not self.comparable(memory_id):
            return "nothing"
        kept = self.must.memories[memory_id]
        review = self.chance.choice([None, "rejected"])
        if review is not None and len(self.must.merged_into(memory_id)) > 1:
            with pytest.raises(Conflict) as refused:
                await self._set(caller, memory_id, Change(review=review))
            assert refused.value.code == "memory.superseded"
            return f"{memory_id} refused"
        kept.review = review
        await self._set(caller, memory_id, Change(review=review))
        if kept.review is not None:
            self.must.outdate(memory_id)
        return f"{memory_id} {kept.review}"

    def comparable(self, memory_id: uuid.UUID) -> bool:
        """Whether nothing that says the same can be under another epoch: there, both stay."""
        return not self.between_epochs or self.must.memories[memory_id].superseded_at is None

    async def supersede(self, caller: Caller) -> str:
        memory_id, by = self.one(), self.one()
        if memory_id is None or by is None or not self.comparable(memory_id):
            return "nothing"
        kept, other = self.must.memories[memory_id], self.must.memories[by]
        successor = self.must.memories.get(kept.superseded_by or by)
        taken = (
            kept.superseded_by not in (None, by) and successor is not None and not successor.over
        )
        refusal = None
        if other.namespace != kept.namespace:
            refusal = "not_found"
        elif by == memory_id or not other.in_force or taken:
            refusal = "memory.superseded"
        if refusal is not None:
            with pytest.raises((Conflict, NotFound)) as refused:
                await self._set(caller, memory_id, Change(superseded_by=by))
            assert refused.value.code == refusal
            return f"{memory_id} by {by} refused: {refusal}"
        await self._set(caller, memory_id, Change(superseded_by=by))
        kept.superseded_at = kept.superseded_at or self.bench.clock()
        kept.superseded_by = by
        self.must.outdate(memory_id)
        return f"{memory_id} by {by}"

    async def bring_back(self, caller: Caller) -> str:
        ids = [
            i for i, k in self.must.memories.items() if not k.over and k.superseded_at is not None
        ]
        if not ids or self.between_epochs:
            return "nothing"
        memory_id = self.chance.choice(ids)
        kept = self.must.memories[memory_id]
        if not self.must.make_room(kept.fact):
            with pytest.raises(Conflict) as refused:
                await self._set(caller, memory_id, Change(superseded_by=None))
            assert refused.value.code == "memory.duplicate"
            return f"{memory_id} refused"
        await self._set(caller, memory_id, Change(superseded_by=None))
        self.must.come_back(memory_id)
        return str(memory_id)

    async def _set(self, caller: Caller, memory_id: uuid.UUID, change: Change) -> None:
        kept = self.must.memories[memory_id]
        if kept.superseded_at is not None:  # it might come back
            self.must.make_room(kept.fact)
        await self.bench.services.state_changer.set_state(caller.access, memory_id, change)

    async def forget(self, caller: Caller) -> str:
        there, turns = self.must.everything(), sorted(self.must.turns)[: self.chance.randrange(2)]
        ids = [i for i in (self.one(living=False), self.one(), *turns) if i is not None]
        ids = list(dict.fromkeys([*ids, *sorted(self.must.erased)[:1], new_id()]))
        done = await self.bench.services.deletion.forget_ids(caller.access, ids)
        assert done.fates == [
            "erased" if i in there
            else "already_erased" if i in self.must.erased else "not_found" for i in ids
        ]  # fmt: skip
        self.must.erase(*(i for i in ids if i in there), upward=True)
        return f"{ids}"

    async def forget_matching(self, caller: Caller) -> str:
        tag = self.chance.choice([None, *TAGS])
        pinned = self.chance.choice([None, False, True])
        states: list[Any] = ["active", "superseded", "rejected", "pending_review", "all"]
        state = self.chance.choice(states)
        before = self.chance.choice([None, *self.moments[-6:]])
        chosen = Filter(
            namespace=self.chance.choice([TEAM, OTHER]),
            tags=() if tag is None else (tag,),
            pinned=pinned,
            state=state,
            before=before,
        )
        wanted = {
            i
            for i, k in self.must.memories.items()
            if k.namespace == chosen.namespace
            and (tag is None or tag in k.now.tags)
            and (pinned is None or k.pinned == pinned)
            and state in (k.state, "all")
            and (before is None or (k.happened or k.revisions[0].since) < before)
        }
        dry = await self.bench.services.deletion.forget_matching(caller, chosen, dry_run=True)
        assert (set(dry.ids), dry.erased) == (wanted, 0)
        if len(wanted) > 4:
            return f"{len(wanted)} would be, and stay"  # so that something is left to walk on
        done = await self.bench.services.deletion.forget_matching(caller, chosen)
        assert set(done.ids) == self.must.entailed(wanted)
        self.must.erase(*wanted)
        return f"{len(wanted)} of {chosen}"

    async def forget_namespace(self, caller: Caller) -> str:
        namespace = OTHER if self.chance.random() < 0.8 else TEAM
        done = await self.bench.services.deletion.forget_namespace(caller.access, namespace)
        ids = {i for i, kept in self.must.everything().items() if kept.namespace == namespace}
        assert set(done.ids) == ids
        self.must.erase(*ids)
        self.must.ttl_s.pop(namespace, None)
        return str(namespace)

    async def keep(self, caller: Caller) -> str:
        """The namespace keeps what is in it for so long from now on."""
        namespace = self.chance.choice([TEAM, OTHER])
        ttl_s = self.chance.choice([None, HOUR, 2 * DAY, 30 * DAY, 30 * DAY])
        living = [kept for kept in self.must.memories.values() if not kept.over]
        if not any(kept.namespace == namespace for kept in living):
            return "nothing"
        await self.bench.services.expiry.keep(caller.access, namespace, ttl_s)
        over = [
            i for i, turn in self.must.turns.items() if turn.too_old and turn.namespace == namespace
        ]
        self.must.expire(*over)
        self.must.ttl_s.pop(namespace, None)
        if ttl_s is not None:
            self.must.ttl_s[namespace] = ttl_s
        self.must.tick(self.bench.clock())
        return f"{namespace} {ttl_s}"

    async def house(self, _: Caller) -> str:
        """What the background does once a minute."""
        await self.bench.services.expiry.expire()
        await self.bench.storage.outbox.publish()
        await self.bench.services.collector.collect()
        await self.bench.storage.outbox.empty()
        over = [i for i, kept in self.must.everything().items() if kept.over]
        self.must.expire(*over)
        return f"{len(over)} were over"

    async def rotate(self, caller: Caller) -> str:
        if self.between_epochs or len(self.rotator.roots) > ROTATIONS_MAX:
            return await self.reseal(caller)
        await self.rotator.rotate(reseal="all")
        self.between_epochs = self.asked = True
        return f"to epoch {len(self.rotator.roots)}"

    async def reseal(self, _: Caller) -> str:
        if not self.asked:
            await self.rotator.send([], [], "all")
        assert await self.rotator.reseal(TEAM, OTHER)
        newest = self.rotator.roots[-1].epoch
        others = "SELECT count(*) FROM memories WHERE epoch <> $1"
        assert await self.bench.value(others, newest) == 0
        self.between_epochs = self.asked = False
        return f"under epoch {newest}"

    async def reindex(self, caller: Caller) -> str:
        """All vectors are made anew; memories are found by the old ones until then."""
        await forget_versions(self.bench.storage.database, account=caller.access.account)
        return ""

    async def restart(self, _: Caller) -> str:
        """Of one process, nothing is in memory any more."""
        self.replicas[self.chance.randrange(2)] = self.bench.another()
        return ""

    async def rebuild(self, caller: Caller) -> str:
        """The database is gone; what only it knew is, too."""
        await self.house(caller)
        await self.holds()
        lost = await self.lose(self.bench)
        lost.root |= self.bench.root
        self._go_on(lost)
        assert [one.outcome for one in await rebuild_lost(lost.storage, lost.clock)] == [REBUILT]
        account = self.rotator.owner.account
        await self.rotator.caller(None, TEAM, OTHER, hold_s=300)
        keys = await lost.storage.custody.job_keys(account)
        assert keys is not None
        await lost.services.restore.complete(account, keys)
        self.asked = False
        self.must.ttl_s.clear()
        self.must.merged = {
            (kept, other)
            for kept, other in self.must.merged
            if self.must.memories[other].superseded_by == kept
        }
        self.must.runs.clear()
        for turn in self.must.turns.values():
            turn.facts = set(turn.own)  # no record says what it merely repeated
        for memory_id, kept in list(self.must.memories.items()):
            kept.seen = 1
            if kept.upload is not None:  # nothing in the store says where it was
                del self.must.memories[memory_id]
                self.must.strays.add(kept.upload)
        return ""

    async def move(self, caller: Caller) -> str:
        """The account goes on at another relayer, which gets all that there is of it."""
        await self.house(caller)
        there = await self.elsewhere(self.bench)
        arrival = await moved(self.bench, there, self.rotator.owner)
        self._go_on(there)
        self.must.runs.clear()
        self.asked = False
        is_entrusted = self.chance.random() < 0.5
        if is_entrusted:
            await entrust(there, self.rotator.owner, self.rotator.roots)
        return f"{len(arrival.memories)}, {is_entrusted}"

    def _go_on(self, bench: Bench) -> None:
        self.replicas = [bench, bench.another()]
        self.bench = self.rotator.bench = bench

    def by_any(self) -> None:
        """Let either process answer what comes."""
        self.bench = self.rotator.bench = self.chance.choice(self.replicas)

    async def holds(self) -> None:
        """`relayer check` finds nothing but bytes that are collected in time."""
        found = (await check(self.bench.storage)).problems
        assert [one for one in found if one["id"] not in self.must.strays] == []


MOVES: dict[str, Move] = {
    "remember": Walk.remember,
    "upload": Walk.upload,
    "talk": Walk.talk,
    "edit": Walk.edit,
    "pin": Walk.pin,
    "review": Walk.review,
    "supersede": Walk.supersede,
    "bring back": Walk.bring_back,
    "forget": Walk.forget,
    "forget matching": Walk.forget_matching,
    "forget namespace": Walk.forget_namespace,
    "keep": Walk.keep,
    "house": Walk.house,
    "rotate": Walk.rotate,
    "reseal": Walk.reseal,
    "reindex": Walk.reindex,
    "restart": Walk.restart,
    "rebuild": Walk.rebuild,
    "move": Walk.move,
    "consolidate": consolidate,
    "undo": undo,
    "contradict": contradict,
}
WEIGHTS = dict(
    zip(MOVES, [30, 8, 10, 15, 10, 8, 9, 6, 5, 3, 1, 6, 4, 2, 3, 2, 3, 2, 2, 8, 5, 12], strict=True)
)
