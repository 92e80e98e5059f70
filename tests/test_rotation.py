"""A new epoch of an account: accepted as a whole, written under at once, followed by re-sealing."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relayer import provision
from relayer.access import Access
from relayer.blobs import BlobStore
from relayer.check import check
from relayer.conversations import Conversation
from relayer.custody import RootKeys
from relayer.database import reseal as reseal_rows
from relayer.errors import BadRequest, Conflict, Corrupted, Misdirected, NotAllowed
from relayer.llm import LanguageModel
from relayer.opening import Caller
from relayer.recall import Query
from relayer.recognition import Stored
from relayer.reseal import OLD_BYTES_LIVE, Resealer
from relayer.revising import Edit
from relayer.rotation import Rotated
from relayer.sealed import envelope
from relayer.sealed.grants import (
    Grant,
    issue_grant,
    issue_revocation,
    open_grant,
    sign_join,
)
from relayer.sealed.keys import AccountId, Namespace, NamespaceKey, PublicKey, Root
from relayer.sealed.primitives import CryptoError, random_key, to_base64url
from relayer.sealed.receipts import open_receipt
from tests.conftest import BenchMaker
from tests.services import OTHER, TEAM, Bench, new_identity
from tests.test_accounts import access as access_of
from tests.test_memory import assert_chain_holds, chain_of

CUSTODIES = ("managed", "sealed")
EPOCHS = "SELECT epoch, count(*)::int FROM memories GROUP BY epoch ORDER BY epoch"
NOT_NOW: Callable[[], bool] = lambda: False  # noqa: E731  # as a type checker sees it
ALWAYS: Callable[[], bool] = lambda: True  # noqa: E731


class Rotator:
    """An owner who knows every root of an account, and the objects it would send."""

    def __init__(self, bench: Bench, owner: provision.NewKey) -> None:
        self.bench, self.owner = bench, owner
        self.roots = [bench.root[owner.account]]

    async def objects(
        self,
        roots: Sequence[Root],
        *,
        revoke: Sequence[PublicKey] = (),
        without: Sequence[PublicKey] = (),
        more: Sequence[PublicKey] = (),
    ) -> tuple[list[bytes], list[bytes]]:
        """(revocations, grants of the same again for everybody under these roots)."""
        account, clock = self.owner.account, self.bench.clock
        chain = await self.bench.storage.accounts.chain(account)
        now_ms = round(clock().timestamp() * 1000)
        serial = chain.serial
        revocations, grants = [], []
        for key in revoke:
            serial += 1
            revocations.append(
                issue_revocation(
                    self.owner.identity,
                    account=account,
                    serial=serial,
                    recipient=key,
                    created_ms=now_ms,
                )
            )
        held = [(k, g) for k in chain.grants for g in chain.live(k, now_ms)]
        held = [(k, g) for k, g in held if k not in (*revoke, *without)]
        for key, grant in [*held, *((k, held[0][1]) for k in more)]:
            serial += 1
            grants.append(
                issue_grant(
                    self.owner.identity,
                    account=account,
                    serial=serial,
                    recipient=key,
                    role=grant.role,
                    keys=_keys(account, grant, roots),
                    created_ms=now_ms,
                    expires_ms=grant.expires_ms,
                )
            )
        return revocations, grants

    async def rotate(
        self, *, revoke: Sequence[PublicKey] = (), reseal: Any = "revoked", **how: Any
    ) -> Rotated:
        """Begin the next epoch."""
        root = Root(self.roots[-1].epoch + 1, random_key())
        revocations, grants = await self.objects([*self.roots, root], revoke=revoke, **how)
        rotated = await self.send(revocations, grants, reseal)
        self.roots.append(root)
        return rotated

    async def send(
        self, revocations: Sequence[bytes], grants: Sequence[bytes], reseal: Any = "none"
    ) -> Rotated:
        """Send these objects."""
        access = await access_of(self.bench, self.owner)
        assert access is not None
        return await self.bench.services.rotations.rotate(
            access, revocations=revocations, grants=grants, reseal=reseal
        )

    def keys(self, *namespaces: Namespace) -> list[NamespaceKey]:
        """The keys of namespaces in every epoch."""
        account = self.owner.account
        return [root.namespace_key(account, n) for root in self.roots for n in namespaces]

    async def caller(
        self,
        key: provision.NewKey | None = None,
        *namespaces: Namespace,
        hold_s: int = 0,
        bench: Bench | None = None,
    ) -> Caller:
        """A caller with the keys of all epochs, as its client would send them."""
        bench = bench or self.bench
        key = key or self.owner
        return await bench.caller(
            key, bench.unlock(key, self.keys(*(namespaces or (TEAM,))), hold_s=hold_s)
        )

    async def reseal(self, *namespaces: Namespace, go_on: Callable[[], bool] = ALWAYS) -> bool:
        """Do the work of the job now, with the keys that it would find."""
        await self.caller(self.owner, *(namespaces or (TEAM,)), hold_s=300)
        keys = await self.bench.storage.custody.reseal_keys(self.owner.account)
        assert keys is not None
        return await self.bench.services.resealer.work(self.owner.account, keys, go_on)

    async def drop_old_bytes(self) -> None:
        """Let the grace of replaced bytes pass, and delete them as housekeeping would."""
        self.bench.clock.advance(OLD_BYTES_LIVE.total_seconds() + 1)
        await self.bench.storage.outbox.empty()


def _keys(account: AccountId, grant: Grant, roots: Sequence[Root]) -> Any:
    if grant.whole_account:
        return list(roots)
    names = dict.fromkeys(e.namespace for e in grant.scope if e.namespace is not None)
    return [root.namespace_key(account, name) for name in names for root in roots]


async def rotator(bench: Bench, custody: str) -> Rotator:
    return Rotator(bench, await bench.account(custody))


async def epochs(bench: Bench) -> dict[int, int]:
    return {r["epoch"]: r["count"] for r in await bench.sql(EPOCHS)}


async def all_bytes(bench: Bench, account: AccountId) -> dict[str, bytes]:
    """Every object that the store holds of an account."""
    store = bench.storage.blobs
    names = [name async for name in store.names(account)]
    found = await store.get_many(account, names)
    return {name: data for name, data in found.items() if isinstance(data, bytes)}


async def opened_by(bench: Bench, account: AccountId, keys: Sequence[NamespaceKey]) -> set[str]:
    """Names of the stored objects that any of these keys opens."""
    names = set()
    for name, data in (await all_bytes(bench, account)).items():
        for key in keys:
            try:
                envelope.open_envelope(key, envelope.read_header(data).address, data)
                names.add(name)
            except CryptoError:
                continue
    return names


async def refused(code: str, use: Awaitable[Any]) -> None:
    with pytest.raises((BadRequest, Conflict, Misdirected, NotAllowed)) as caught:
        await use
    assert caught.value.code == code


@pytest.mark.parametrize("custody", CUSTODIES)
class TestAcceptance:
    async def test_everybody_goes_on_in_the_new_epoch(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        ends = bench.clock() + timedelta(days=3)
        agent = await bench.key(owner.owner, TEAM, OTHER, role="reader", expires_at=ends)
        deputy = await bench.key(owner.owner, role="owner", label="deputy")
        before = await bench.storage.accounts.listed_keys(await _access(bench, owner.owner))
        rotated = await owner.rotate()
        chain = await bench.storage.accounts.chain(owner.owner.account)
        assert (rotated.epoch, rotated.serial, chain.epoch) == (2, chain.serial, 2)
        for key in (owner.owner, agent, deputy):
            [_, again] = chain.grants[key.identity.public_key]
            opened = open_grant(again, key.identity)
            assert [k.epoch for k in opened] == ([1, 2, 1, 2] if key is agent else [1, 2])
        assert chain.grants[agent.identity.public_key][1].expires_ms == _ms(ends)
        assert await bench.storage.accounts.listed_keys(await _access(bench, owner.owner)) == before
        receipts = [open_receipt(r, bench.storage.identity.public_key) for r in rotated.receipts]
        assert {r.op for r in receipts} == {"grant"}
        assert len(receipts) == 3 + (custody == "managed")
        assert [r.serial for r in receipts][-1] == rotated.serial
        await assert_chain_holds(bench, owner.owner.account)
        assert (await check(bench.storage)).problems == []

    async def test_with_a_revocation_before_it(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        lost = await bench.key(owner.owner, TEAM)
        kept = await bench.key(owner.owner, TEAM)
        rotated = await owner.rotate(revoke=[lost.identity.public_key])
        assert await access_of(bench, lost) is None
        assert await access_of(bench, kept) is not None
        ops = [open_receipt(r, bench.storage.identity.public_key).op for r in rotated.receipts]
        assert ops == ["revoke"] + ["grant"] * (len(ops) - 1)
        chain = await bench.storage.accounts.chain(owner.owner.account)
        assert [g.scope[-1].epoch for g in chain.grants[lost.identity.public_key]] == [1]

    async def test_all_or_nothing(self, bench: Bench, custody: str) -> None:
        """What any rule refuses leaves grants, receipts and the epoch as they were."""
        owner = await rotator(bench, custody)
        agent = await bench.key(owner.owner, TEAM)
        founder, stranger = owner.owner.identity.public_key, new_identity().public_key
        second, third = Root(2, random_key()), Root(3, random_key())
        both = [*owner.roots, second]
        receipts = await chain_of(bench, owner.owner.account)

        async def attempt(code: str, objects: tuple[list[bytes], list[bytes]]) -> None:
            await refused(code, owner.send(*objects))

        of = owner.objects
        await attempt("grant.invalid", await of([*owner.roots, third]))
        await attempt("grant.invalid", await of(both, without=[agent.identity.public_key]))
        await attempt("grant.invalid", await of(both, more=[stranger]))
        revocations, _ = await of(both, revoke=[agent.identity.public_key])
        _, grants = await of(both, more=[founder])
        await attempt("grant.invalid", (revocations, grants[1:]))
        await attempt("grant.invalid", (revocations, grants))
        await attempt("grant.serial", ([], grants[1:]))
        await attempt("grant.invalid", ([], [*grants, b"no grant"]))
        _, other = await of([*owner.roots, Root(2, random_key())])
        await attempt("grant.invalid", ([], [*grants[:-2], *other[-2:]]))
        await attempt("grant.invalid", ([], grants[:1]))
        assert await chain_of(bench, owner.owner.account) == receipts
        assert await bench.value("SELECT epoch FROM accounts") == 1
        await owner.rotate()

    async def test_only_owners_rotate(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        agent = await bench.key(owner.owner)  # the whole account, as a writer
        _, grants = await owner.objects([*owner.roots, Root(2, random_key())])
        owner.owner = agent
        await refused("auth.not_allowed", owner.send([], grants))
        await refused("auth.not_allowed", owner.send([], [], "all"))

    async def test_a_single_grant_begins_no_epoch(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        bench_root = bench.root[owner.owner.account]
        bench.root[owner.owner.account] = Root(2, random_key())
        _, [grant, *_] = await owner.objects([bench_root, bench.root[owner.owner.account]])
        await refused(
            "grant.invalid",
            bench.storage.accounts.grant(
                account=owner.owner.account,
                actor=owner.owner.identity.public_key,
                signed=grant,
                join=b"",
                label="",
            ),
        )

    async def test_of_two_at_once_one_counts(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        both = [await owner.objects([*owner.roots, Root(2, random_key())]) for _ in range(2)]
        done = await asyncio.gather(*(owner.send(*o) for o in both), return_exceptions=True)
        assert sorted(type(d).__name__ for d in done) == ["Conflict", "Rotated"]
        assert (await bench.storage.accounts.chain(owner.owner.account)).epoch == 2
        await assert_chain_holds(bench, owner.owner.account)


class TestWriting:
    """While both epochs are alive."""

    @pytest.mark.parametrize("custody", CUSTODIES)
    async def test_reads_and_writes_go_on(self, hybrid: Bench, custody: str) -> None:
        """What was said before is recalled, known and forgotten beside what is new."""
        owner = await rotator(hybrid, custody)
        caller = await owner.caller()
        old = await hybrid.remember(caller, "Anna prefers tea.", tags=("drinks",))
        await hybrid.embed(caller, old)
        await owner.rotate(reseal="none")
        caller = await owner.caller()
        new = await hybrid.remember(caller, "Ben prefers coffee.", tags=("drinks",))
        await hybrid.embed(caller, new)
        assert await epochs(hybrid) == {1: 1, 2: 1}
        both = {"Anna prefers tea.", "Ben prefers coffee."}
        for mode in ("keyword", "vector", "hybrid"):
            assert set(await hybrid.texts(caller, "who prefers", mode=mode)) == both
        assert set(await hybrid.texts(caller, "prefers", tags=("drinks",))) == both
        [again] = await hybrid.remember(caller, "Anna  prefers tea.")
        assert (again.duplicate, again.id) == (True, old[0].id)
        assert (await hybrid.services.memory.get(caller, old[0].id)).text == "Anna prefers tea."
        await hybrid.services.memory.forget(caller.access, old[0].id)
        assert await hybrid.texts(caller, "prefers") == ["Ben prefers coffee."]
        [anew] = await hybrid.remember(caller, "Anna prefers tea.")
        assert not anew.duplicate
        assert await epochs(hybrid) == {2: 2}

    @pytest.mark.parametrize("custody", CUSTODIES)
    async def test_both_legs_search_both_epochs_while_it_is_half_sealed_anew(
        self, hybrid: Bench, custody: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What moved, what has not yet, and what was written or forgotten meanwhile."""
        monkeypatch.setattr("relayer.reseal.PAGE", 3)
        owner = await rotator(hybrid, custody)
        caller = await owner.caller()
        texts = [f"{name} drinks tea with milk." for name in ("Anna", "Ben", "Cleo", "Dan", "Eva")]
        stored = await hybrid.remember(caller, *texts)
        await hybrid.embed(caller, stored)
        await owner.rotate(reseal="all")
        assert not await owner.reseal(go_on=NOT_NOW)
        caller = await owner.caller()
        await hybrid.embed(caller, await hybrid.remember(caller, "Finn drinks tea with milk."))
        await hybrid.services.memory.forget(caller.access, stored[0].id)
        await hybrid.services.memory.forget(caller.access, stored[4].id)
        assert await epochs(hybrid) == {1: 1, 2: 3}
        left = {*texts[1:4], "Finn drinks tea with milk."}
        for _ in range(2):
            for mode in ("keyword", "vector", "hybrid"):
                found = await hybrid.texts(caller, "Who drinks tea?", mode=mode)
                assert (len(found), {*found}) == (4, left)
                for text in left:
                    assert (await hybrid.texts(caller, text, mode=mode))[0] == text
            assert await owner.reseal()
            caller = await owner.caller()
        assert await epochs(hybrid) == {2: 4}

    async def test_an_idempotency_key_of_before_is_known(self, bench: Bench) -> None:
        owner = await rotator(bench, "sealed")
        caller = await owner.caller()
        [first] = await bench.remember(caller, "Anna prefers tea.", idempotency_key="k")
        await owner.rotate()
        [again] = await bench.remember(
            await owner.caller(), "Anna prefers tea.", idempotency_key="k"
        )
        assert (again.id, again.duplicate) == (first.id, True)

    async def test_old_keys_alone_are_refused(self, bench: Bench) -> None:
        """Neither written nor read: a client that knows no better would miss what is new."""
        owner = await rotator(bench, "sealed")
        agent = await bench.key(owner.owner, TEAM)
        header = bench.unlock(agent, owner.keys(TEAM))
        await owner.rotate()
        await refused("epoch.outdated", bench.caller(agent, header))
        partly = [*owner.keys(TEAM), owner.keys(OTHER)[0]]
        await refused(
            "epoch.outdated", bench.caller(owner.owner, bench.unlock(owner.owner, partly))
        )
        await owner.caller(agent)

    @pytest.mark.parametrize("custody", CUSTODIES)
    async def test_a_write_that_began_before_is_refused(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        caller = await owner.caller()
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        receipts = len(await chain_of(bench, owner.owner.account))
        rotated = await owner.rotate()
        await refused("epoch.outdated", bench.remember(caller, "Ben prefers coffee."))
        edit = Edit(changes={"text": "Anna prefers coffee."})
        await refused("epoch.outdated", bench.services.reviser.edit(caller, stored.id, edit))
        assert await epochs(bench) == {1: 1}
        grown = len(await chain_of(bench, owner.owner.account)) - receipts
        assert grown == len(rotated.receipts)

    async def test_a_waiting_turn_is_extracted_under_the_new_keys(
        self, make_bench: BenchMaker
    ) -> None:
        bench = make_bench()
        owner = await rotator(bench, "managed")
        caller = await owner.caller()
        episode = await _keep_turn(bench, caller)
        await owner.rotate()
        keys = await bench.storage.custody.job_keys(owner.owner.account)
        assert keys is not None
        await bench.services.analysis.extract_episode(owner.owner.account, keys, episode)
        assert set(await epochs(bench)) == {2}


async def _keep_turn(bench: Bench, caller: Caller) -> uuid.UUID:
    """A turn that waits for its extraction."""
    away = bench.another(language_model=_away())
    await away.services.analysis.analyze(caller, _conversation())
    return uuid.UUID(str(await bench.value("SELECT episode_id FROM episodes")))


def _away() -> LanguageModel:
    return LanguageModel(base_url="http://127.0.0.1:9/v1", api_key="", model="away", timeout_s=1.0)


def _conversation() -> Conversation:
    return Conversation(text="user: I prefer tea over coffee.", namespace=TEAM)


async def _access(bench: Bench, key: provision.NewKey) -> Access:
    access = await access_of(bench, key)
    assert access is not None
    return access


def _ms(moment: Any) -> int:
    return round(moment.timestamp() * 1000)


ROWS = """
SELECT memory_id, namespace_id, seq, revision, revision_of, type, kind, importance, confidence,
       writer, event_time, created_at, stored_at, expires_at, superseded_at, size_bytes,
       word_count, index_version, embedding_model, embedding_version
FROM memories ORDER BY memory_id
"""
TRACES = """
SELECT m.blob_id, m.fingerprint, m.source, m.tokens,
       (SELECT array_agg(v.embedding::text ORDER BY part) FROM vectors v
        WHERE v.memory_id = m.memory_id) AS vectors
FROM memories m ORDER BY m.memory_id
"""


async def life(bench: Bench, caller: Caller) -> list[Stored]:
    """Memories of several sorts, one of them edited since, embedded."""
    stored = await bench.remember(
        caller,
        "Anna prefers tea in the morning.",
        "Ben sells cups.",
        tags=("trade",),
        source="chat",
    )
    stored += await bench.remember(caller, "Café Größe 42.", metadata={"place": "Bern"})
    await bench.embed(caller, stored)
    await bench.sql("UPDATE memories SET fingerprint = NULL WHERE seq = 3")  # as a merged one has
    return stored


async def recalled(bench: Bench, caller: Caller) -> list[Any]:
    """What queries find, in order, with their scores."""
    found = []
    for mode in ("keyword", "vector", "hybrid"):
        for text in ("Anna's tea", "who sells cups", "Größe"):
            query = Query(text=text, namespaces=[TEAM], mode=mode)
            answer = await bench.services.recaller.recall(caller, query)
            found += [
                (mode, f.memory.id, f.memory.text, round(f.hit.score, 2)) for f in answer.found
            ]
            assert answer.dropped == 0
    return found


@pytest.mark.parametrize("custody", CUSTODIES)
@pytest.mark.parametrize("outside", [False, True], ids=["postgres", "folder"])
class TestReseal:
    @pytest.fixture
    def bench(self, make_bench: BenchMaker, embedder: Any, tmp_path: Path, outside: bool) -> Bench:
        changes = {"blob_store": f"file:{tmp_path / 'blobs'}"} if outside else {}
        return make_bench(embedder=embedder, **changes)

    async def test_everything_moves_and_is_found_as_before(
        self, bench: Bench, custody: str
    ) -> None:
        """capability 4.20: what memories are found by is rebuilt when their keys change."""
        owner = await rotator(bench, custody)
        await life(bench, await owner.caller())
        rows, traces = await bench.sql(ROWS), await bench.sql(TRACES)
        found = await recalled(bench, await owner.caller())
        await owner.rotate(reseal="all")
        assert await owner.reseal()
        assert await epochs(bench) == {2: 3}
        assert await bench.sql(ROWS) == rows
        for old, new in zip(traces, await bench.sql(TRACES), strict=True):
            assert old["blob_id"] != new["blob_id"]
            assert not set(old["tokens"]) & set(new["tokens"])
            assert old["vectors"] != new["vectors"]
            assert (old["fingerprint"], old["source"]) == (None, None) or old != new
        assert await recalled(bench, await owner.caller()) == found
        await owner.drop_old_bytes()
        assert await recalled(bench, await owner.caller()) == found
        assert (await check(bench.storage)).problems == []
        await assert_chain_holds(bench, owner.owner.account)

    async def test_receipts_say_what_moved_where(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        stored = await life(bench, await owner.caller())
        await owner.rotate(reseal="all")
        await owner.reseal()
        relayer = bench.storage.identity.public_key
        last = open_receipt((await chain_of(bench, owner.owner.account))[-1], relayer)
        assert (last.op, last.actor, last.namespace, last.epoch) == ("reseal", relayer, TEAM, 2)
        blobs = {
            r["memory_id"]: to_base64url(r["blob_id"])
            for r in await bench.sql("SELECT memory_id, blob_id FROM memories")
        }
        assert {(i.memory, i.revision, i.blob_id) for i in last.items} == {
            (s.id, 1, blobs[s.id]) for s in stored
        }

    async def test_old_keys_open_nothing_any_more(self, bench: Bench, custody: str) -> None:
        """Every object of the store is tried with every old key."""
        owner = await rotator(bench, custody)
        agent = await bench.key(owner.owner, TEAM)
        caller = await owner.caller()
        await life(bench, caller)
        old = owner.keys(TEAM, OTHER)
        assert len(await opened_by(bench, owner.owner.account, old)) == 3
        await owner.rotate(revoke=[agent.identity.public_key], reseal="none")
        await bench.remember(await owner.caller(), "Said after the rotation.")
        assert len(await opened_by(bench, owner.owner.account, old)) == 3
        await owner.send([], [], "all")
        await owner.reseal()
        await owner.drop_old_bytes()
        assert await opened_by(bench, owner.owner.account, old) == set()
        assert len(await opened_by(bench, owner.owner.account, owner.keys(TEAM)[1:])) == 4

    async def test_old_bytes_stay_for_whoever_just_read_their_names(
        self, bench: Bench, custody: str
    ) -> None:
        owner = await rotator(bench, custody)
        await life(bench, await owner.caller())
        names = [
            to_base64url(r["blob_id"]) for r in await bench.sql("SELECT blob_id FROM memories")
        ]
        await owner.rotate(reseal="all")
        await owner.reseal()
        await bench.storage.outbox.empty()
        assert len(await bench.storage.blobs.get_many(owner.owner.account, names)) == 3
        await owner.drop_old_bytes()
        assert await bench.storage.blobs.get_many(owner.owner.account, names) == {}
        assert (await bench.services.restore.restore(await owner.caller(), TEAM, 9)).restored == 0

    async def test_only_what_was_chosen(self, bench: Bench, custody: str) -> None:
        """By default what revoked keys could read, however long ago they were revoked."""
        owner = await rotator(bench, custody)
        agent = await bench.key(owner.owner, OTHER)
        caller = await owner.caller(None, TEAM, OTHER)
        await bench.remember(caller, "apples")
        await bench.remember(caller, "pears", namespace=OTHER)
        await bench.revoke(owner.owner, agent.identity.public_key)
        await owner.rotate()
        progress = await bench.services.rotations.progress(await _access(bench, owner.owner))
        assert [(n.name, n.total, n.remaining) for n in progress.namespaces] == [(OTHER, 1, 1)]
        assert progress.older == 2
        await owner.reseal(TEAM, OTHER)
        assert await epochs(bench) == {1: 1, 2: 1}
        # What was sealed anew since is nothing the revoked key could read.
        await owner.rotate()
        await owner.reseal(TEAM, OTHER)
        assert await epochs(bench) == {1: 1, 2: 1}
        await owner.send([], [], [TEAM])
        await owner.reseal(TEAM, OTHER)
        assert await epochs(bench) == {2: 1, 3: 1}
        assert set(
            await bench.texts(
                await owner.caller(None, TEAM, OTHER), "apples pears", namespaces=[TEAM, OTHER]
            )
        ) == {"apples", "pears"}

    async def test_it_goes_on_where_it_stopped(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        texts = [f"harbour note {n}" for n in range(70)]
        await bench.remember(await owner.caller(), *texts)
        await owner.rotate(reseal="all")
        assert not await owner.reseal(go_on=NOT_NOW)
        assert await epochs(bench) == {1: 6, 2: 64}
        caller = await owner.caller()
        assert set(await bench.texts(caller, "harbour", limit=100, mode="keyword")) == set(texts)
        assert await owner.reseal()
        assert await epochs(bench) == {2: 70}
        receipts = await chain_of(bench, owner.owner.account)
        assert await owner.reseal()
        assert await chain_of(bench, owner.owner.account) == receipts

    async def test_a_fact_stays_one_fact(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        [first] = await bench.remember(await owner.caller(), "Anna prefers tea.")
        await owner.rotate(reseal="all")
        await bench.sql("UPDATE memories SET fingerprint = NULL")  # so that it is said again
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        await bench.sql("UPDATE memories SET fingerprint = '\\x01' WHERE epoch = 1")
        await owner.reseal()
        assert await epochs(bench) == {2: 2}
        [again] = await bench.remember(await owner.caller(), "Anna prefers tea.")
        assert (again.duplicate, again.id != first.id) == (True, True)

    async def test_earlier_revisions_and_waiting_turns_move_too(
        self, bench: Bench, custody: str
    ) -> None:
        owner = await rotator(bench, custody)
        caller = await owner.caller()
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        episode = await _keep_turn(bench, caller)
        was = bench.clock()
        bench.clock.advance(60)
        edit = Edit(changes={"text": "Anna prefers coffee."})
        await bench.services.reviser.edit(await owner.caller(), stored.id, edit)
        await owner.rotate(reseal="all")
        await owner.reseal()
        await owner.drop_old_bytes()
        assert await epochs(bench) == {2: 2}
        assert await bench.value("SELECT epoch FROM episodes WHERE state = 'pending'") == 2
        caller = await owner.caller()
        assert await bench.texts(caller, "Anna prefers") == ["Anna prefers coffee."]
        assert await bench.texts(caller, "Anna prefers", as_of=was) == ["Anna prefers tea."]
        keys = owner.keys(TEAM)[:1]
        assert await opened_by(bench, owner.owner.account, keys) == set()
        assert (await check(bench.storage)).problems == []
        account = owner.owner.account
        await bench.services.analysis.extract_episode(account, caller.keys, episode)
        assert await bench.value("SELECT state FROM episodes WHERE episode_id = $1", episode) != (
            "pending"
        )


class Meanwhile:
    """A blob store during whose first read of several something else happens."""

    def __init__(self, inner: BlobStore, happens: Callable[[], Awaitable[Any]]) -> None:
        self._inner = inner
        self._happens: Callable[[], Awaitable[Any]] | None = happens

    @property
    def transactional(self) -> bool:
        return self._inner.transactional

    async def put_many(self, account: AccountId, blobs: Mapping[str, bytes]) -> None:
        await self._inner.put_many(account, blobs)

    async def get_many(
        self, account: AccountId, names: Sequence[str]
    ) -> dict[str, bytes | Corrupted]:
        found = await self._inner.get_many(account, names)
        happens, self._happens = self._happens, None
        if happens is not None:
            await happens()
        return found

    async def delete(self, account: AccountId, name: str) -> None:
        await self._inner.delete(account, name)

    def names(self, account: AccountId) -> Any:
        return self._inner.names(account)


def resealer_during(bench: Bench, happens: Callable[[], Awaitable[Any]]) -> Resealer:
    """A resealer between whose reading and writing something happens."""
    return Resealer(
        database=bench.storage.database,
        blobs=Meanwhile(bench.storage.blobs, happens),
        outbox=bench.storage.outbox,
        namespaces=bench.storage.namespaces,
        identity=bench.storage.identity,
        clock=bench.clock,
    )


class TestMeanwhile:
    """What happens between reading a page and moving it wins; the next pass looks again."""

    async def begun(self, bench: Bench) -> tuple[Rotator, list[Stored]]:
        owner = await rotator(bench, "managed")
        stored = await bench.remember(await owner.caller(), "Anna prefers tea.", "Ben sells cups.")
        await owner.rotate(reseal="all")
        return owner, stored

    async def work(self, owner: Rotator, happens: Callable[[], Awaitable[Any]]) -> None:
        keys = await owner.bench.storage.custody.reseal_keys(owner.owner.account)
        assert keys is not None
        resealer = resealer_during(owner.bench, happens)
        assert await resealer.work(owner.owner.account, keys, ALWAYS)

    async def holds(self, owner: Rotator) -> None:
        assert (await check(owner.bench.storage)).problems == []
        await assert_chain_holds(owner.bench, owner.owner.account)

    async def test_erased(self, bench: Bench) -> None:
        owner, [anna, _] = await self.begun(bench)
        caller = await owner.caller()
        await self.work(owner, lambda: bench.services.memory.forget(caller.access, anna.id))
        assert await epochs(bench) == {2: 1}
        assert await bench.texts(caller, "Anna Ben") == ["Ben sells cups."]
        await self.holds(owner)
        await owner.drop_old_bytes()
        assert len(await opened_by(bench, owner.owner.account, owner.keys(TEAM))) == 1

    async def test_edited(self, bench: Bench) -> None:
        owner, [anna, _] = await self.begun(bench)
        caller = await owner.caller()
        edit = Edit(changes={"text": "Anna prefers coffee."})
        await self.work(owner, lambda: bench.services.reviser.edit(caller, anna.id, edit))
        assert await bench.texts(caller, "Anna") == ["Anna prefers coffee."]
        await self.holds(owner)
        await self.work(owner, lambda: asyncio.sleep(0))
        assert set(await epochs(bench)) == {2}
        assert await bench.texts(caller, "Anna") == ["Anna prefers coffee."]
        await self.holds(owner)

    async def test_embedded(self, hybrid: Bench) -> None:
        owner, stored = await self.begun(hybrid)
        caller = await owner.caller()
        await self.work(owner, lambda: hybrid.embed(caller, stored))
        assert await epochs(hybrid) == {1: 2}
        await self.work(owner, lambda: asyncio.sleep(0))
        assert await epochs(hybrid) == {2: 2}
        found = await hybrid.texts(caller, "Anna's tea", mode="vector")
        assert found[0] == "Anna prefers tea."
        await self.holds(owner)

    async def test_expired(self, bench: Bench) -> None:
        owner, [anna, _] = await self.begun(bench)
        soon = bench.clock() + timedelta(seconds=30)
        await bench.sql("UPDATE memories SET expires_at = $2 WHERE memory_id = $1", anna.id, soon)

        async def expire() -> None:
            bench.clock.advance(60)
            await bench.services.expiry.expire()
            assert await epochs(bench) == {1: 1}

        await self.work(owner, expire)
        assert await epochs(bench) == {2: 1}
        await self.holds(owner)

    async def test_said_again(self, bench: Bench) -> None:
        owner, [anna, _] = await self.begun(bench)
        caller = await owner.caller()
        await self.work(owner, lambda: bench.remember(caller, "Anna prefers tea."))
        assert (await bench.remember(caller, "Anna prefers tea."))[0].id == anna.id
        assert await epochs(bench) == {2: 2}

    async def test_sealed_anew_by_another_worker(self, bench: Bench) -> None:
        owner, _ = await self.begun(bench)
        await self.work(owner, owner.reseal)
        assert await epochs(bench) == {2: 2}
        await self.holds(owner)

    async def test_an_altered_memory_is_passed_over(self, bench: Bench) -> None:
        owner, [anna, _] = await self.begun(bench)
        await bench.sql(
            "UPDATE blobs SET bytes = set_byte(bytes, 300, get_byte(bytes, 300) # 1) WHERE blob_id "
            "= (SELECT blob_id FROM memories WHERE memory_id = $1)",
            anna.id,
        )
        await owner.reseal()
        assert await epochs(bench) == {1: 1, 2: 1}
        progress = await bench.services.rotations.progress(await _access(bench, owner.owner))
        assert (progress.older, [n.remaining for n in progress.namespaces]) == (0, [0])

    async def test_an_altered_turn_is_passed_over(self, bench: Bench) -> None:
        """It keeps neither the job nor the epochs before it alive."""
        owner = await rotator(bench, "managed")
        await _keep_turn(bench, await owner.caller())
        await owner.rotate(reseal="all")
        await bench.sql("UPDATE blobs SET bytes = set_byte(bytes, 300, get_byte(bytes, 300) # 1)")
        await owner.reseal()
        assert await bench.value("SELECT state FROM episodes") == "failed"
        assert await reseal_rows.accounts_due(bench.storage.database) == []
        progress = await bench.services.rotations.progress(await _access(bench, owner.owner))
        assert (progress.older, [n.remaining for n in progress.namespaces]) == (0, [])
        await owner.send(*await owner.objects(owner.roots[1:]))

    async def test_a_missing_blob_is_waited_for(self, bench: Bench) -> None:
        owner, [anna, _] = await self.begun(bench)
        of_anna = "(SELECT blob_id FROM memories WHERE memory_id = $1)"
        [saved] = await bench.sql(
            f"DELETE FROM blobs WHERE blob_id = {of_anna} RETURNING *", anna.id
        )
        await owner.reseal()
        assert await epochs(bench) == {1: 1, 2: 1}
        progress = await bench.services.rotations.progress(await _access(bench, owner.owner))
        assert [n.remaining for n in progress.namespaces] == [1]
        await bench.sql("INSERT INTO blobs VALUES ($1, $2, $3, $4)", *saved)
        await owner.reseal()
        assert await epochs(bench) == {2: 2}

    async def test_foreign_ciphertext_stays_as_it_is(self, bench: Bench) -> None:
        owner, _ = await self.begun(bench)
        await bench.sql("UPDATE namespaces SET reseal_below = 9")
        caller = await owner.caller()
        await bench.services.manual.remember(
            caller, TEAM, b"{foreign bytes", np.ones(6, np.float32)
        )
        await owner.reseal()
        assert await epochs(bench) == {2: 3}


class TestKeys:
    """Whose keys a sealed account's memories are sealed anew with."""

    async def begun(self, bench: Bench) -> tuple[Rotator, provision.NewKey]:
        owner = await rotator(bench, "sealed")
        agent = await bench.key(owner.owner, TEAM)
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        await owner.rotate(reseal="all")
        return owner, agent

    async def test_only_those_that_an_owner_lends(self, bench: Bench) -> None:
        owner, agent = await self.begun(bench)
        custody, account = bench.storage.custody, owner.owner.account
        assert await custody.reseal_keys(account) is None
        await owner.caller(agent, hold_s=300)
        assert await custody.reseal_keys(account) is None
        assert await custody.job_keys(account) is not None
        await owner.caller(hold_s=0)
        assert await custody.reseal_keys(account) is None
        await owner.caller(hold_s=60)
        assert await custody.reseal_keys(account) is not None
        await owner.caller(agent, hold_s=300)
        bench.clock.advance(61)
        assert await custody.reseal_keys(account) is None, "the agent's lending extends no owner's"

    async def test_progress_says_what_waits(self, bench: Bench) -> None:
        owner, agent = await self.begun(bench)
        await bench.remember(await owner.caller(None, OTHER), "elsewhere", namespace=OTHER)

        async def waiting(key: provision.NewKey) -> list[tuple[str, int, int]]:
            progress = await bench.services.rotations.progress(await _access(bench, key))
            return [(n.name, n.remaining, n.waiting_for_keys) for n in progress.namespaces]

        assert await waiting(owner.owner) == [(TEAM, 1, 1)]
        assert await waiting(agent) == [(TEAM, 1, 1)]
        await owner.caller(hold_s=300)
        assert await waiting(owner.owner) == [(TEAM, 1, 0)]
        await owner.reseal()
        assert await waiting(owner.owner) == [(TEAM, 0, 0)]

    async def test_lending_begins_it_and_it_ends_by_itself(self, bench: Bench) -> None:
        owner, _ = await self.begun(bench)
        async with bench.working():
            await owner.caller(hold_s=300)
            await bench.until("SELECT count(*)::int FROM memories WHERE epoch = 2", 1)

    async def test_a_managed_account_needs_nobody(self, bench: Bench) -> None:
        owner = await rotator(bench, "managed")
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        async with bench.working():
            await owner.rotate(reseal="all")
            await bench.until("SELECT count(*)::int FROM memories WHERE epoch = 2", 1)

    async def test_the_sweeper_finds_what_its_job_lost(self, bench: Bench) -> None:
        owner = await rotator(bench, "managed")
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        await owner.rotate(reseal="all")
        await bench.sql("DELETE FROM pgqueuer")
        await bench.services.worker.sweep()
        assert await bench.value("SELECT count(*) FROM pgqueuer WHERE entrypoint = 'reseal'") == 1

    async def test_ending_custody_with_new_keys_locks_the_relayer_out(self, bench: Bench) -> None:
        """Managed to sealed: what the relayer holds as custodian opens nothing that is new."""
        owner = await rotator(bench, "managed")
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        before = await bench.storage.custody.job_keys(owner.owner.account)
        assert isinstance(before, RootKeys)
        await owner.rotate(revoke=[bench.storage.identity.public_key], reseal="all")
        assert await bench.storage.custody.job_keys(owner.owner.account) is None
        await owner.reseal()
        await owner.drop_old_bytes()
        account = owner.owner.account
        assert await opened_by(bench, account, [before.of(TEAM)[0]]) == set()
        assert await bench.texts(await owner.caller(), "tea") == ["Anna prefers tea."]


class TestRetiring:
    """Leaving an old epoch out of everybody's grants."""

    @pytest.mark.parametrize("custody", CUSTODIES)
    async def test_once_nothing_is_under_it(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        agent = await bench.key(owner.owner, TEAM)
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        await owner.rotate(reseal="all")
        await refused("epoch.in_use", owner.send(*await owner.objects(owner.roots[1:])))
        assert (await bench.storage.accounts.chain(owner.owner.account)).serial < 9
        await owner.reseal()
        await owner.send(*await owner.objects(owner.roots[1:]))
        del owner.roots[0]
        caller = await owner.caller(agent)
        assert [k.epoch for k in caller.keys.of(TEAM)] == [2]
        assert await bench.texts(caller, "tea") == ["Anna prefers tea."]
        fresh = await provision.add_key(
            bench.storage,
            account=owner.owner.account,
            namespaces=[TEAM],
            role="writer",
            label="later",
            expires_at=None,
            owner=owner.owner.identity,
            clock=bench.clock,
        )
        chain = await bench.storage.accounts.chain(owner.owner.account)
        [grant] = chain.grants[fresh.identity.public_key]
        assert [e.epoch for e in grant.scope] == [2]

    async def test_not_by_an_owner_who_never_had_it(self, bench: Bench) -> None:
        """One that was given the newest epoch alone drops no older one that others still need."""
        owner = await rotator(bench, "sealed")
        await bench.remember(await owner.caller(), "Anna prefers tea.")
        await owner.rotate(reseal="none")
        founder, deputy = owner.owner, new_identity()
        chain = await bench.storage.accounts.chain(founder.account)
        signed = issue_grant(
            founder.identity,
            account=founder.account,
            serial=chain.serial + 1,
            recipient=deputy.public_key,
            role="owner",
            keys=owner.roots[1:],
            created_ms=_ms(bench.clock()),
        )
        join = sign_join(
            deputy,
            account=founder.account,
            issuer=founder.identity.public_key,
            relayer=bench.storage.identity.public_key,
        )
        await bench.storage.accounts.grant(
            account=founder.account,
            actor=founder.identity.public_key,
            signed=signed,
            join=join,
            label="deputy",
        )
        owner.owner = provision.NewKey(founder.account, deputy, "sealed")
        await refused("epoch.in_use", owner.send(*await owner.objects(owner.roots[1:])))

    async def test_a_turn_that_waits_keeps_it_alive(self, bench: Bench) -> None:
        owner = await rotator(bench, "managed")
        await _keep_turn(bench, await owner.caller())
        await owner.rotate(reseal="none")
        await refused("epoch.in_use", owner.send(*await owner.objects(owner.roots[1:])))


class TestRevocation:
    """It counts at once, everywhere."""

    async def test_on_every_replica_with_warm_caches(self, bench: Bench) -> None:
        owner = await rotator(bench, "sealed")
        agent = await bench.key(owner.owner, TEAM)
        replica = bench.another()
        for one in (bench, replica):
            header = one.unlock(agent, owner.keys(TEAM), hold_s=300)
            await bench.remember(await one.caller(agent, header), f"tea {one is bench}")
            assert await one.storage.custody.job_keys(owner.owner.account) is not None
        await bench.revoke(owner.owner, agent.identity.public_key)
        for one in (replica, bench):
            assert await access_of(one, agent) is None
            assert await one.storage.custody.job_keys(owner.owner.account) is None
            assert await one.storage.custody.held(owner.owner.account) == []

    async def test_what_it_had_queued_does_not_run_with_its_keys(self, hybrid: Bench) -> None:
        owner = await rotator(hybrid, "sealed")
        agent = await hybrid.key(owner.owner, TEAM)
        replica = hybrid.another()
        header = replica.unlock(agent, owner.keys(TEAM), hold_s=300)
        await replica.remember(await replica.caller(agent, header), "Anna prefers tea.")
        await hybrid.revoke(owner.owner, agent.identity.public_key)
        async with replica.working():
            waits = "SELECT count(*)::int FROM pgqueuer WHERE entrypoint = 'embed' AND attempts > 0"
            await hybrid.until(waits, 1)  # picked up, and put back for want of keys
            assert await hybrid.value("SELECT count(*) FROM vectors") == 0
            await owner.caller(hold_s=300, bench=replica)
            await hybrid.until("SELECT count(*)::int FROM vectors", 1)

    async def test_another_keys_lending_ends_with_it_too(self, bench: Bench) -> None:
        owner = await rotator(bench, "sealed")
        agents = [await bench.key(owner.owner, TEAM) for _ in range(2)]
        await owner.caller(agents[0], hold_s=300)
        await bench.revoke(owner.owner, agents[1].identity.public_key)
        assert await bench.storage.custody.job_keys(owner.owner.account) is None
