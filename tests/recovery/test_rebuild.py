"""Everything that recall needs, rebuilt from a folder of blobs after the database is gone."""

import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from relayer.app import build_app
from relayer.blobs.store import FolderStore
from relayer.clock import MOMENT_MS_MAX, rfc3339_ms
from relayer.errors import Conflict, Unavailable
from relayer.journal.states import Change
from relayer.llm import LanguageModel
from relayer.memories.opening import Caller
from relayer.memories.revising import Edit
from relayer.record import Draft, encode, new_id
from relayer.recovery.restore import REST
from relayer.sealed.envelope import MEMORY, Address, blob_id, seal
from relayer.sealed.grants import issue_grant
from relayer.sealed.keys import AccountId, Root, account_id, account_text
from relayer.sealed.named import NamedKey, sign_namespace
from relayer.sealed.primitives import random_key
from relayer.sealed.receipts import REBUILD, open_receipt, sign_receipt
from relayer.storage import Storage
from relayer.upkeep import provision
from relayer.upkeep.check import check
from relayer.upkeep.rebuild import CLOSED, REBUILT, rebuild_lost
from tests.chains import assert_chain_holds
from tests.openai_server import OpenAIServer
from tests.rebuilding import ROWS, Lose, bench, completed, embed_all, every, lose, rebuilt
from tests.services import OTHER, TEAM, Bench, bench_on, new_identity
from tests.signing import client_of, signed_headers
from tests.talking import AWAY, BERLIN, MUNICH, analyze, choose, facts
from tests.thinking import model, server
from tests.unreadable import make_unreadable

__all__ = ["bench", "lose", "model", "server"]  # fixtures

RECEIPT = "SELECT object FROM receipts ORDER BY seq LIMIT 1"


async def eventful(bench: Bench, caller: Caller) -> dict[str, Any]:
    """Memories with all that can become of one, a minute apart."""
    stored = await bench.remember(caller, "One apple.", "Two pears.", "Three plums.", "Four figs.")
    edited, pinned, old, doomed = stored
    bench.clock.advance(60)
    await bench.services.reviser.edit(caller, edited.id, Edit(changes={"text": "Five dates."}))
    await bench.services.reviser.set_state(caller.access, pinned.id, Change(pinned=True))
    [new] = await bench.remember(caller, "Six limes.")
    await bench.services.reviser.set_state(caller.access, old.id, Change(superseded_by=new.id))
    await bench.remember(caller, "Elsewhere.", namespace=OTHER)
    bench.clock.advance(60)
    await bench.services.forgetting.forget(caller.access, doomed.id)
    return {"edited": edited.id, "doomed": doomed.id}


@pytest.mark.parametrize("custody", ["managed", "sealed"])
async def test_everything_comes_back(bench: Bench, lose: Lose, custody: str) -> None:
    founder = await bench.account(custody)
    caller = await bench.unlocked(founder, TEAM, OTHER)
    await eventful(bench, caller)
    before = await bench.sql(ROWS)
    as_of = bench.clock() - timedelta(seconds=90)
    lost = await lose(bench)
    assert await rebuilt(lost, bench) == [REBUILT]
    again = await lost.unlocked(founder, TEAM, OTHER, hold_s=300)
    await completed(lost, founder)
    assert await lost.sql(ROWS) == before
    assert await lost.texts(again, "apple", mode="keyword") == []
    assert await lost.texts(again, "apple", mode="keyword", as_of=as_of) == ["One apple."]
    assert await lost.texts(again, "dates", mode="keyword") == ["Five dates."]
    assert await lost.texts(again, "plums figs", mode="keyword") == []
    assert not await lost.value("SELECT incomplete FROM accounts")
    await embed_all(bench, caller)
    await embed_all(lost, again)
    asked = "Which fruits are there?"
    assert await lost.texts(again, asked) == await bench.texts(caller, asked)
    assert (await check(lost.storage)).problems == []


async def test_the_chain_begins_anew_and_says_so(bench: Bench, lose: Lose) -> None:
    founder = await bench.account()
    await eventful(bench, await bench.caller(founder))
    newest = await bench.value("SELECT max(seq) FROM receipts")
    lost = await lose(bench)
    await rebuilt(lost, bench)
    receipt = open_receipt(await lost.value(RECEIPT), lost.storage.identity.public_key)
    assert (receipt.op, receipt.seq, receipt.items) == (REBUILD, newest + 1, ())
    # The newest object of the journal is the erasure's receipt, which is known.
    head = await bench.value("SELECT receipt_head FROM accounts")
    assert receipt.previous == head


async def test_what_was_erased_stays_erased(bench: Bench, lose: Lose, tmp_path: Path) -> None:
    """Even when a backup of the folder still has its blob."""
    founder = await bench.account()
    caller = await bench.caller(founder)
    [doomed] = await bench.remember(caller, "Anna prefers tea.")
    saved = await bench.storage.blobs.get_many(
        founder.account, [name async for name in bench.storage.blobs.names(founder.account)]
    )
    await bench.services.forgetting.forget(caller.access, doomed.id)
    await bench.storage.outbox.empty()
    await bench.storage.outbox.publish()
    lost = await lose(bench)
    kept = {name: data for name, data in saved.items() if isinstance(data, bytes)}
    await lost.storage.blobs.put_many(founder.account, kept)
    await rebuilt(lost, bench)
    await completed(lost, founder)
    assert await lost.sql("SELECT memory_id FROM memories") == []
    assert await lost.value("SELECT memory_id FROM tombstones") == doomed.id
    await lost.storage.outbox.empty()
    left = [data for data in (await every(lost, founder)) if data.startswith(b"\x01")]
    assert left == []


async def test_an_account_with_an_unreadable_object_is_not_rebuilt(
    bench: Bench, lose: Lose, tmp_path: Path
) -> None:
    """It may be an erasure; other accounts do not wait for it."""
    founder, _ = await bench.account(), await bench.account()
    caller = await bench.caller(founder)
    [doomed] = await bench.remember(caller, "Anna prefers tea.")
    receipt, _ = await bench.services.memory.forget(caller.access, doomed.id)
    await bench.storage.outbox.publish()
    lost = await lose(bench)
    back = make_unreadable(tmp_path, blob_id(receipt))
    outcomes = await rebuilt(lost, bench)
    assert sorted(outcomes) == ["not rebuilt: Corrupted, see the log", REBUILT]
    back()
    assert await rebuilt(lost, bench) == [REBUILT]
    assert await lost.value("SELECT memory_id FROM tombstones") == doomed.id


async def test_a_sealed_account_waits_for_each_key(bench: Bench, lose: Lose) -> None:
    founder = await bench.account("sealed")
    caller = await bench.unlocked(founder, TEAM, OTHER)
    await bench.remember(caller, "Anna prefers tea.")
    await bench.remember(caller, "Elsewhere.", namespace=OTHER)
    lost = await lose(bench)
    await rebuilt(lost, bench)
    assert await lost.storage.custody.job_keys(founder.account) is None
    await lost.unlocked(founder, TEAM, hold_s=300)
    await completed(lost, founder)
    assert await lost.value("SELECT count(*) FROM memories") == 1
    # What nobody has opened since is no orphan to be collected, however long it takes.
    assert await lost.value("SELECT incomplete FROM accounts")
    lost.clock.advance(3600 * 24 * 30)
    await lost.services.collector.collect()
    await lost.storage.outbox.empty()
    await lost.unlocked(founder, OTHER, hold_s=300)
    await completed(lost, founder)
    assert await lost.value("SELECT count(*) FROM memories") == 2
    assert not await lost.value("SELECT incomplete FROM accounts")


async def test_the_store_is_not_read_each_minute_while_keys_are_missing(
    bench: Bench, lose: Lose, monkeypatch: pytest.MonkeyPatch
) -> None:
    founder = await bench.account("sealed")
    caller = await bench.unlocked(founder, TEAM, OTHER)
    await bench.remember(caller, "Anna prefers tea.")
    await bench.remember(caller, "Elsewhere.", namespace=OTHER)
    lost = await lose(bench)
    await rebuilt(lost, bench)
    await lost.unlocked(founder, TEAM, hold_s=300)
    await completed(lost, founder)  # gives a row back
    await completed(lost, founder)  # finds that there is nothing more to do
    read, get_many = [], FolderStore.get_many

    async def counted(store: FolderStore, account: AccountId, names: Sequence[str]) -> Any:
        read.extend(names)
        return await get_many(store, account, names)

    monkeypatch.setattr(FolderStore, "get_many", counted)
    for _ in range(3):
        lost.clock.advance(60)
        await completed(lost, founder)
    assert read == []
    lost.clock.advance(REST.total_seconds())
    await lost.unlocked(founder, TEAM, hold_s=300)
    await completed(lost, founder)
    assert read != []
    await lost.unlocked(founder, OTHER, hold_s=300)
    await completed(lost, founder)
    assert await lost.value("SELECT count(*) FROM memories") == 2
    assert not await lost.value("SELECT incomplete FROM accounts")


async def test_other_keys_and_revocations_count(bench: Bench, lose: Lose) -> None:
    founder = await bench.account("sealed")
    writer = await bench.key(founder, TEAM)
    gone = await bench.key(founder, TEAM)
    await bench.revoke(founder, gone.identity.public_key)
    lost = await lose(bench)
    await rebuilt(lost, bench)
    accounts = lost.storage.accounts
    assert await accounts.claim(founder.account, writer.identity.public_key)
    assert (await lost.unlocked(writer, TEAM)).access.namespaces == [TEAM]
    assert not await accounts.claim(founder.account, gone.identity.public_key)


async def test_again_does_nothing(bench: Bench, lose: Lose) -> None:
    founder = await bench.account()
    await bench.remember(await bench.caller(founder), "Anna prefers tea.")
    lost = await lose(bench)
    assert await rebuilt(lost, bench) == [REBUILT]
    await completed(lost, founder)
    assert await rebuilt(lost, bench) == []
    await completed(lost, founder)
    assert await lost.value("SELECT count(*) FROM memories") == 1


async def test_only_an_empty_database_is_rebuilt_by_itself(bench: Bench, lose: Lose) -> None:
    await bench.account()
    assert await rebuild_lost(bench.storage, bench.clock, only_if_empty=True) == []
    lost = await lose(bench)
    await lost.account()
    assert await rebuild_lost(lost.storage, lost.clock, only_if_empty=True) == []
    assert len(await rebuild_lost(lost.storage, lost.clock)) == 1


class Awaited(FolderStore):
    """A store in which something happens before the second account is read."""

    happens: Callable[[], Awaitable[object]]
    read = 0

    async def marked(self, account: AccountId) -> int:
        """What a folder does."""
        self.read += 1
        if self.read == 2:
            await self.happens()
        return await super().marked(account)


async def away() -> None:
    raise Unavailable("away")


async def accounts(bench: Bench) -> int:
    return int(await bench.value("SELECT count(*) FROM accounts"))


def awaited(lost: Bench, folder: Path, happens: Callable[[], Awaitable[object]]) -> Storage:
    store = Awaited(folder=folder)
    store.happens = happens
    return replace(lost.storage, blobs=store)


async def by_itself(lost: Bench, storage: Storage | None = None) -> list[str]:
    """What a start does."""
    done = await rebuild_lost(storage or lost.storage, lost.clock, only_if_empty=True)
    return [one.outcome for one in done]


async def test_a_rebuild_that_was_interrupted_goes_on(
    bench: Bench, lose: Lose, tmp_path: Path
) -> None:
    for _ in range(3):
        await bench.account()
    lost = await lose(bench)
    with pytest.raises(Unavailable):
        await by_itself(lost, awaited(lost, tmp_path / "blobs", away))
    assert await accounts(lost) == 1
    assert await by_itself(lost) == [REBUILT, REBUILT]
    assert await by_itself(lost) == []


async def test_another_replica_does_not_begin_before_all_are_there(
    bench: Bench, lose: Lose, tmp_path: Path
) -> None:
    for _ in range(3):
        await bench.account()
    lost = await lose(bench)
    done: list[str] = []

    async def other() -> None:
        done.extend(await by_itself(lost.another()))
        assert await accounts(lost) == 3

    await by_itself(lost, awaited(lost, tmp_path / "blobs", other))
    assert done == [REBUILT, REBUILT]


async def test_what_was_rebuilt_is_not_behind_its_store(bench: Bench, lose: Lose) -> None:
    """Memories alone were written last."""
    founder = await bench.account()
    caller = await bench.caller(founder)
    for number in range(5):
        await bench.remember(caller, f"Crate {number} is here.")
    lost = await lose(bench)
    await rebuilt(lost, bench)
    seq = await lost.value("SELECT receipt_seq FROM accounts")
    assert seq > await bench.value("SELECT receipt_seq FROM accounts")
    assert seq == await lost.storage.blobs.marked(founder.account)
    await assert_chain_holds(lost, founder.account)


async def moved_back(bench: Bench, founder: provision.NewKey) -> None:
    """Found the account once more, with the founder's own key."""
    grant = issue_grant(
        founder.identity,
        account=founder.account,
        serial=1,
        recipient=founder.identity.public_key,
        role="owner",
        keys=[bench.root[founder.account]],
        created_ms=1,
    )
    await bench.storage.granting.create(
        founder=founder.identity.public_key, grants=[grant], label=""
    )


class TestTurns:
    """Sealed conversations come back as what they were."""

    KEPT = "1. user: I prefer window seats on trains."
    WAITS = "1. user: I am allergic to peanuts."

    @pytest.fixture
    def thinking(self, bench: Bench, model: LanguageModel) -> Bench:
        return bench.another(language_model=model)

    async def test_a_kept_one_is_kept_and_one_that_waits_gives_its_facts(
        self, thinking: Bench, server: OpenAIServer, lose: Lose
    ) -> None:
        founder = await thinking.account()
        caller = await choose(thinking, await thinking.caller(founder), keep_turns=True)
        server.script(facts("The user prefers window seats."), AWAY)
        kept = await analyze(thinking, caller, self.KEPT)
        waits = await analyze(thinking, caller, self.WAITS)
        assert kept.kept is not None
        assert waits.episode is not None
        times = (
            "SELECT episode_id, state, writer, created_at, fingerprint FROM episodes"
            " ORDER BY episode_id"
        )
        before = list(await thinking.sql(times))
        lost = await lose(thinking)
        lost.clock.advance(3600)
        assert await rebuilt(lost, thinking) == [REBUILT]
        await completed(lost, founder)
        assert await lost.sql(times) == before
        again = await lost.caller(founder)
        turn = await lost.services.turns.get(again, kept.kept)
        assert (turn.text, list(turn.fact_ids)) == (self.KEPT, [kept.facts[0].id])
        keys = await lost.storage.custody.job_keys(founder.account)
        assert keys is not None
        await lost.services.analysis.extract_episode(founder.account, keys, waits.episode)
        assert len(await lost.texts(again, "peanuts", mode="keyword")) == 1
        await completed(lost, founder)
        assert (await check(lost.storage)).problems == []
        # It still goes with what came from it.
        await lost.services.forgetting.forget(again.access, kept.facts[0].id)
        assert await lost.value("SELECT count(*) FROM episodes WHERE state = 'kept'") == 0

    async def test_an_erased_one_stays_erased(
        self, thinking: Bench, server: OpenAIServer, lose: Lose
    ) -> None:
        """Even when a backup of the folder still has its blob."""
        founder = await thinking.account()
        caller = await choose(thinking, await thinking.caller(founder), keep_turns=True)
        server.script(facts("The user prefers window seats."))
        kept = await analyze(thinking, caller, self.KEPT)
        saved = await every(thinking, founder)
        await thinking.services.forgetting.forget(caller.access, kept.facts[0].id)
        await thinking.storage.outbox.empty()
        lost = await lose(thinking)
        await lost.storage.blobs.put_many(founder.account, {blob_id(data): data for data in saved})
        await rebuilt(lost, thinking)
        await completed(lost, founder)
        assert await lost.sql("SELECT 1 FROM episodes") == []
        assert await lost.sql("SELECT 1 FROM memories") == []

    async def test_what_a_fact_speaks_against_is_known_again(
        self, thinking: Bench, server: OpenAIServer, lose: Lose
    ) -> None:
        founder = await thinking.account()
        caller = await thinking.caller(founder)
        [old] = await thinking.remember(caller, BERLIN)
        server.script(facts(MUNICH, contradicts=1))
        await analyze(thinking, caller, "1. user: I moved to Munich.")
        links = "SELECT memory_id, relation, other_id FROM links"
        before = await thinking.sql(links)
        assert [r["other_id"] for r in before] == [old.id]
        lost = await lose(thinking)
        await rebuilt(lost, thinking)
        await completed(lost, founder)
        assert await lost.sql(links) == before

    async def test_what_a_summary_was_made_of_is_known_again(
        self, bench: Bench, lose: Lose
    ) -> None:
        """What is erased takes its summary along; in others, that metadata says nothing."""
        founder = await bench.account()
        caller = await bench.caller(founder)
        [source] = await bench.remember(caller, "Anna prefers tea.")
        named = {"metadata": {"sources": str(source.id)}}
        await bench.remember(caller, "Anna: tea, as a rule.", kind="procedural", **named)
        [other] = await bench.remember(caller, "Ben sells cups.", **named)
        lost = await lose(bench)
        await rebuilt(lost, bench)
        await completed(lost, founder)
        again = await lost.caller(founder)
        await lost.services.forgetting.forget(again.access, source.id)
        assert [r["memory_id"] for r in await lost.sql("SELECT memory_id FROM memories")] == [
            other.id
        ]


class TestAbsurdTimes:
    """An earlier release took them in; no clock shows them."""

    @pytest.mark.parametrize("created_ms", [MOMENT_MS_MAX + 1, 2**53 - 1])
    async def test_of_a_grant(self, bench: Bench, lose: Lose, created_ms: int) -> None:
        founder, innocent = new_identity(), await bench.account()
        account = account_id(founder.public_key)
        signed = issue_grant(
            founder,
            account=account,
            serial=1,
            recipient=founder.public_key,
            role="owner",
            keys=[Root(1, random_key())],
            created_ms=created_ms,
            expires_ms=created_ms,
        )
        await bench.storage.blobs.put_many(account, {blob_id(signed): signed})
        lost = await lose(bench)
        assert await rebuilt(lost, bench) == [REBUILT, REBUILT]
        [key] = await lost.storage.accounts.all_keys(account)
        assert rfc3339_ms(key["created_ms"]) == rfc3339_ms(MOMENT_MS_MAX)
        assert rfc3339_ms(key["expires_ms"]) == rfc3339_ms(MOMENT_MS_MAX)
        assert (await lost.caller(innocent)).access.is_owner

    async def test_of_an_envelope(self, bench: Bench, lose: Lose) -> None:
        founder = await bench.account()
        caller = await bench.caller(founder)
        await bench.remember(caller, "Anna prefers tea.")
        record = encode(Draft(text="Ben sells cups.", namespace=TEAM), caller.access.key)
        for created_ms in (2**62, 2**64 - 1):
            place = Address(MEMORY, founder.account, new_id(), 1)
            key = bench.namespace_key(founder.account, TEAM)
            blob = seal(key, place, record, created_ms=created_ms)
            await bench.storage.blobs.put_many(founder.account, {blob_id(blob): blob})
        lost = await lose(bench)
        assert await rebuilt(lost, bench) == [REBUILT]
        await completed(lost, founder)
        stored = await lost.sql("SELECT stored_at FROM memories ORDER BY stored_at")
        assert [row["stored_at"].year for row in stored] == [bench.clock().year, 9999, 9999]
        assert not await lost.value("SELECT incomplete FROM accounts")


async def test_no_request_passes_again_afterwards(bench: Bench, lose: Lose) -> None:
    founder, path = await bench.account(), "/v1/usage"
    named = {"account": account_text(founder.account), "timestamp_s": int(time.time())}
    headers = signed_headers(founder.identity, "GET", path, b"", **named)
    settings = replace(bench.settings, embedder="none")

    async def answered(storage: Storage) -> int:
        async with client_of(build_app(storage, settings)) as client:
            return (await client.get(path, headers=headers)).status_code

    assert [await answered(bench.storage) for _ in range(2)] == [200, 401]
    after = await lose(bench)
    assert [r.outcome for r in await rebuild_lost(after.storage, bench.clock)] == [REBUILT]
    assert await answered(after.storage) == 503


class TestRefused:
    async def test_one_account_keeps_no_other_one_from_it(
        self, bench: Bench, lose: Lose, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Whatever is wrong with it: here an epoch that no column holds."""
        poisoned, innocent = await bench.account(), await bench.account()
        named = NamedKey(poisoned.account, TEAM, 2**32 - 1, random_key())
        signed = sign_namespace(bench.storage.identity, named)
        await bench.storage.blobs.put_many(poisoned.account, {blob_id(signed): signed})
        lost = await lose(bench)
        done = {one.account: one for one in await rebuild_lost(lost.storage, lost.clock)}
        assert done[innocent.account].outcome == REBUILT
        assert done[poisoned.account].outcome == "not rebuilt: DataError, see the log"
        assert not done[poisoned.account].as_json()["ok"]
        rows = await lost.sql("SELECT account_id FROM accounts")
        assert [row["account_id"] for row in rows] == [innocent.account]
        [line] = [r for r in caplog.records if getattr(r, "event", "") == "rebuild.failed"]
        assert (line.exc_info, line.__dict__["exception"]["type"]) == (None, "DataError")

    async def test_a_grant_is_missing(self, bench: Bench, lose: Lose, tmp_path: Path) -> None:
        """Without it, nobody knows whether a key was revoked."""
        founder = await bench.account("sealed")
        gone = await bench.key(founder, TEAM)
        await bench.revoke(founder, gone.identity.public_key)
        grant = await bench.value("SELECT object FROM grants WHERE serial = 2")
        await bench.storage.blobs.delete(founder.account, blob_id(grant))
        lost = await lose(bench)
        [outcome] = await rebuilt(lost, bench)
        assert outcome == "not rebuilt: the journal has none or several grants of serial 2"
        assert await lost.sql("SELECT account_id FROM accounts") == []

    async def test_the_newest_grant_is_missing(self, bench: Bench, lose: Lose) -> None:
        """An erasure since then names its serial."""
        founder = await bench.account("sealed")
        gone = await bench.key(founder, TEAM)
        await bench.revoke(founder, gone.identity.public_key)
        caller = await bench.unlocked(founder, TEAM)
        [doomed] = await bench.remember(caller, "Anna prefers tea.")
        await bench.services.forgetting.forget(caller.access, doomed.id)
        grant = await bench.value("SELECT object FROM grants WHERE serial = 3")
        await bench.storage.blobs.delete(founder.account, blob_id(grant))
        lost = await lose(bench)
        [outcome] = await rebuilt(lost, bench)
        assert outcome == "not rebuilt: the journal lacks its newest grants"

    async def test_two_grants_for_one_place(self, bench: Bench, lose: Lose) -> None:
        founder = await bench.account("sealed")
        await bench.key(founder, TEAM)
        signed = issue_grant(
            founder.identity,
            account=founder.account,
            serial=2,
            recipient=new_identity().public_key,
            role="owner",
            keys=[bench.root[founder.account]],
            created_ms=1,
        )
        await bench.storage.blobs.put_many(founder.account, {blob_id(signed): signed})
        lost = await lose(bench)
        [outcome] = await rebuilt(lost, bench)
        assert outcome == "not rebuilt: the journal has none or several grants of serial 2"

    async def test_what_could_not_be_granted_means_nothing(self, bench: Bench, lose: Lose) -> None:
        """A writer's own first grant, put into the folder."""
        founder = await bench.account()
        writer = await bench.key(founder, TEAM)
        forged = issue_grant(
            writer.identity,
            account=founder.account,
            serial=1,
            recipient=writer.identity.public_key,
            role="owner",
            keys=[bench.root[founder.account]],
            created_ms=1,
        )
        await bench.storage.blobs.put_many(founder.account, {blob_id(forged): forged})
        lost = await lose(bench)
        assert await rebuilt(lost, bench) == [REBUILT]
        assert (await lost.caller(founder)).access.is_owner
        accounts = lost.storage.accounts
        assert not await accounts.claim(founder.account, new_identity().public_key)

    async def test_two_receipts_of_one_number_both_count(self, bench: Bench, lose: Lose) -> None:
        """A database that was set back and went on leaves such ones in the journal."""
        founder = await bench.account()
        caller = await bench.caller(founder)
        [doomed] = await bench.remember(caller, "Anna prefers tea.")
        done = await bench.services.forgetting.forget(caller.access, doomed.id)
        receipt = open_receipt(done.receipts[0], bench.storage.identity.public_key)
        others = [new_id() for _ in range(3)]
        for other in others:
            items = (replace(receipt.items[0], memory=other),)
            signed = sign_receipt(bench.storage.identity, replace(receipt, items=items))
            await bench.storage.blobs.put_many(founder.account, {blob_id(signed): signed})
        lost = await lose(bench)
        assert await rebuilt(lost, bench) == [REBUILT]
        stones = await lost.sql("SELECT memory_id FROM tombstones")
        assert {row["memory_id"] for row in stones} == {doomed.id, *others}

    async def test_what_strangers_signed_means_nothing(self, bench: Bench, lose: Lose) -> None:
        """Objects of another relayer, as an upload could bring them."""
        founder, stranger = await bench.account(), new_identity()
        caller = await bench.caller(founder)
        [kept] = await bench.remember(caller, "Anna prefers tea.")
        other = await lose(bench)
        other = bench_on(
            bench.settings,
            other.storage.connect_args,
            other.storage.database,
            identity=stranger,
            clock=bench.clock,
            blob_store="postgres",
        )
        from relayer.database.accounts import Heads
        from relayer.journal.receipts import Act, next_receipt
        from relayer.sealed.receipts import Item

        heads = Heads(9, 1, 99, bytes(32), 0, 0, bench.clock())
        act = Act(founder.account, stranger.public_key, "forget", bench.clock())
        item = Item(kept.id, 1, "A" * 43)
        signed, _ = next_receipt(stranger, act, heads, (item,), TEAM, 1)
        await bench.storage.blobs.put_many(founder.account, {blob_id(signed): signed})
        lost = await lose(bench)
        assert await rebuilt(lost, bench) == [REBUILT]
        await completed(lost, founder)
        assert await lost.value("SELECT memory_id FROM memories") == kept.id
        assert await lost.sql("SELECT memory_id FROM tombstones") == []

    async def test_a_closed_account_stays_closed(self, bench: Bench, lose: Lose) -> None:
        founder = await bench.account()
        await bench.services.closing.close_account(founder.account, founder.identity.public_key)
        await bench.storage.outbox.publish()
        lost = await lose(bench)
        assert await rebuilt(lost, bench) == [CLOSED]
        with pytest.raises(Conflict):
            await moved_back(lost, founder)

    async def test_no_folder_of_an_account(self, bench: Bench, lose: Lose, tmp_path: Path) -> None:
        folder = tmp_path / "blobs"
        (folder / "lost+found").mkdir(parents=True)
        (folder / ("AB" * 32)).mkdir()
        lost = await lose(bench)
        assert await rebuilt(lost, bench) == []
        shutil.rmtree(folder)
