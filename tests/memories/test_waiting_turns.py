"""Turns that wait for a language model that is away: kept, extracted once, dropped if forgotten."""

import asyncio
import threading
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from relayer.app import build_app
from relayer.errors import Conflict, Corrupted, NotAllowed, NotFound, QuotaExceeded, Unavailable
from relayer.llm import LanguageModel
from relayer.memories.opener import Caller
from relayer.sealed import envelope
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.upkeep.provision import NewKey
from tests.chains import assert_chain_holds
from tests.conftest import BenchMaker
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer, Step
from tests.services import COUNT, TEAM, Bench
from tests.signing import client_of, signer_of
from tests.talking import AWAY, TALK, analyze, facts
from tests.thinking import model, server, thinking

__all__ = ["model", "server", "thinking"]  # fixtures


class TestPending:
    """The model is away."""

    async def test_the_turn_is_kept_and_extracted_later(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """capability 2.17: a failed summary never loses the turn."""
        caller = await thinking.caller(await thinking.account())
        server.script(AWAY)
        analyzed = await analyze(
            thinking, caller, TALK, source="chat/9", occurred_at=thinking.clock()
        )
        assert list(analyzed.facts) == []
        assert analyzed.pending is not None
        assert len(analyzed.receipts) == 1
        states = await thinking.services.memory.states(caller.access, [analyzed.pending])
        assert states[analyzed.pending]["state"] == "pending"
        blob = await thinking.value(
            "SELECT bytes FROM blobs JOIN episodes USING (account_id, blob_id)"
        )
        assert b"window" not in blob
        assert envelope.read_header(blob).address.type == envelope.EPISODE
        server.script(facts("The user prefers window seats."))
        await thinking.services.analysis.extract_episode(
            caller.access.account, caller.keys, analyzed.pending
        )
        [memory] = await thinking.services.memory.newest(caller, [TEAM], limit=5)
        assert (memory.text, memory.source) == ("The user prefers window seats.", "chat/9")
        assert memory.writer == caller.access.key
        states = await thinking.services.memory.states(caller.access, [analyzed.pending])
        assert states[analyzed.pending]["state"] == "done"
        left = "SELECT count(*) FROM blobs b JOIN episodes e USING (account_id, blob_id)"
        assert await thinking.value(left) == 0
        used = await thinking.value(
            "SELECT storage_bytes - (SELECT sum(size_bytes) FROM memories) FROM accounts"
        )
        assert used == 0
        await assert_chain_holds(thinking, caller.access.account)

    async def test_the_model_is_told_the_time_as_it_was_told_then(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """In its own zone: it counts days from there."""
        caller = await thinking.caller(await thinking.account())
        server.script(AWAY, facts("The user prefers window seats."))
        when = datetime(2026, 5, 4, 23, 30, tzinfo=timezone(timedelta(hours=-5)))
        analyzed = await analyze(thinking, caller, TALK, occurred_at=when)
        assert analyzed.pending is not None
        await thinking.services.analysis.extract_episode(
            caller.access.account, caller.keys, analyzed.pending
        )
        assert "2026-05-04T23:30:00-05:00" in server.received[-1].json["messages"][-1]["content"]

    async def test_the_job_does_it_when_the_model_is_back(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await thinking.caller(await thinking.account())
        server.script(AWAY, AWAY)
        async with thinking.working():
            await analyze(thinking, caller, "FACT: The roof leaks.")
            await thinking.until("SELECT count(*) FROM episodes WHERE state = 'done'", 1)
        assert await thinking.texts(caller, "roof") == ["The roof leaks."]
        assert server.scripted_left == 0

    async def test_useless_answers_end_with_the_rules(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """capability 2.17: a model that keeps answering nonsense is not asked for ever."""
        caller = await thinking.caller(await thinking.account())
        server.script(*[Step(content="just chatter")] * 2)
        await self.assert_ends_with_the_rules(thinking, caller, server)

    async def test_an_outage_that_is_told_with_status_200_waits(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """However often: the rules take over for a turn, not for a server that is away."""
        caller = await thinking.caller(await thinking.account())
        away = Step(body=b'{"error":{"code":502,"message":"Provider returned error"}}')
        # Where no request waits, another prompt is asked about as well.
        server.script(away, *[away] * 2 * 3, facts("The user prefers window seats."))
        kept = await analyze(thinking, caller, TALK)
        assert kept.pending is not None
        extract = thinking.services.analysis.extract_episode
        for _ in range(3):
            with pytest.raises(Unavailable):
                await extract(caller.access.account, caller.keys, kept.pending)
        await extract(caller.access.account, caller.keys, kept.pending)
        assert await thinking.texts(caller, "window seats") == ["The user prefers window seats."]

    async def test_a_turn_that_the_model_s_server_refuses_ends_with_the_rules(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """As one does that is too long for it, or that a filter of its own stops."""
        caller = await thinking.caller(await thinking.account())
        server.script(facts(), *[Step(status=400)] * 2, facts())
        await analyze(thinking, caller, "1. user: Hello again.")  # what it takes is known by then
        await self.assert_ends_with_the_rules(thinking, caller, server)

    async def assert_ends_with_the_rules(
        self, bench: Bench, caller: Caller, server: OpenAIServer
    ) -> None:
        """A turn that had a useless answer waits for one more, and no longer."""
        kept = await analyze(bench, caller, TALK)
        assert kept.pending is not None
        extract = bench.services.analysis.extract_episode
        await extract(caller.access.account, caller.keys, kept.pending)
        assert server.scripted_left == 0
        texts = await bench.texts(caller, "window seats")
        assert texts == ["I prefer window seats on trains."]

    async def test_the_same_turn_said_again_ends_the_wait(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """Retried with the model back, a kept turn is extracted once, not once more by its job."""
        caller = await thinking.caller(await thinking.account())
        server.script(AWAY)
        kept = await analyze(thinking, caller, TALK)
        assert kept.pending is not None
        server.script(facts("The user prefers window seats."))
        assert len((await analyze(thinking, caller, TALK)).facts) == 1
        states = await thinking.services.memory.states(caller.access, [kept.pending])
        assert states[kept.pending]["state"] == "done"
        await assert_chain_holds(thinking, caller.access.account)

    async def test_the_same_turn_twice_waits_once(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await thinking.caller(await thinking.account())
        server.script(*[AWAY] * 4)
        results = await asyncio.gather(*(analyze(thinking, caller, TALK) for _ in range(3)))
        assert len({r.pending for r in results}) == 1
        assert sum(len(r.receipts) for r in results) == 1
        assert await thinking.value("SELECT count(*) FROM episodes") == 1
        await analyze(thinking, caller, TALK, occurred_at=thinking.clock())
        assert await thinking.value("SELECT count(*) FROM episodes") == 2

    async def wait_for(self, bench: Bench, caller: Caller, server: OpenAIServer) -> Any:
        """The id of an episode that waits."""
        server.script(AWAY)
        analyzed = await analyze(bench, caller, TALK)
        assert analyzed.pending is not None
        return analyzed.pending

    @pytest.mark.parametrize("waits_already", [False, True])
    async def test_a_retry_leads_to_the_turn_also_when_it_is_done(
        self, thinking: Bench, server: OpenAIServer, waits_already: bool
    ) -> None:
        """Else the model is asked once more, and finds other words for the same facts."""
        caller = await thinking.caller(await thinking.account())
        if waits_already:
            server.script(AWAY)
            await analyze(thinking, caller, TALK)
        server.script(AWAY)
        kept = await analyze(thinking, caller, TALK, idempotency_key="k")
        assert kept.pending is not None
        server.script(facts("The user prefers window seats."))
        await thinking.services.analysis.extract_episode(
            caller.access.account, caller.keys, kept.pending
        )
        asked = len(server.received)
        again = await analyze(thinking, caller, TALK, idempotency_key="k")
        assert (again.pending, list(again.receipts)) == (kept.pending, [])
        assert len(server.received) == asked
        assert await thinking.value(COUNT) == 1
        with pytest.raises(Conflict):
            await analyze(thinking, caller, f"{TALK} No.", idempotency_key="k")
        await assert_chain_holds(thinking, caller.access.account)

    async def test_a_request_that_comes_twice_at_once_waits_once(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await thinking.caller(await thinking.account())
        server.script(*[AWAY] * 4)
        turns = await asyncio.gather(
            *(analyze(thinking, caller, TALK, idempotency_key="k") for _ in range(4))
        )
        assert len({turn.pending for turn in turns}) == 1
        assert await thinking.value("SELECT count(*) FROM episodes") == 1

    async def test_a_retry_that_has_facts_stores_all_of_them_beside_a_wait(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """The first request lets the turn wait while the model answers the second one."""
        caller, let = await thinking.caller(await thinking.account()), threading.Event()
        found = ["The launch moved to May.", "The user prefers window seats."]
        server.script(replace(facts(*found), held=let), AWAY)
        retry = asyncio.create_task(analyze(thinking, caller, TALK, idempotency_key="k"))
        while not server.received:
            await asyncio.sleep(0.01)
        first = await analyze(thinking, caller, TALK, idempotency_key="k")
        assert first.pending is not None
        let.set()
        assert [fact.text for fact in (await retry).facts] == found
        assert not any(fact.duplicate for fact in (await retry).facts)
        assert sorted(await thinking.texts(caller, "launch window")) == found
        again = await analyze(thinking, caller, TALK, idempotency_key="k")
        assert [fact.text for fact in again.facts] == found

    @pytest.mark.parametrize(
        "found", [[], ["The launch moved to May.", "The user prefers window seats."]]
    )
    @pytest.mark.parametrize(
        "others", [[], ["Anna has a nut allergy.", "Carl left.", "Dora came."]]
    )
    async def test_of_two_at_once_the_later_one_has_what_the_first_one_stored(
        self, thinking: Bench, server: OpenAIServer, found: list[str], others: list[str]
    ) -> None:
        """Whatever the model says the second time."""
        caller, let = await thinking.caller(await thinking.account()), threading.Event()
        server.script(replace(facts(*(others or found)), held=let), facts(*found))
        late = asyncio.create_task(analyze(thinking, caller, TALK, idempotency_key="k"))
        while not server.received:
            await asyncio.sleep(0.01)
        first = await analyze(thinking, caller, TALK, idempotency_key="k")
        let.set()
        assert [(f.id, f.text, f.duplicate) for f in (await late).facts] == [
            (f.id, f.text, True) for f in first.facts
        ]
        assert await thinking.value(COUNT) == len(found)

    async def test_of_two_texts_under_one_key_at_once_the_first_one_counts(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller, let = await thinking.caller(await thinking.account()), threading.Event()
        server.script(replace(facts("Anna is allergic to nuts."), held=let), facts())
        late = asyncio.create_task(analyze(thinking, caller, f"{TALK} No.", idempotency_key="k"))
        while not server.received:
            await asyncio.sleep(0.01)
        assert (await analyze(thinking, caller, TALK, idempotency_key="k")).facts == []
        let.set()
        with pytest.raises(Conflict):
            await late
        assert (await analyze(thinking, caller, TALK, idempotency_key="k")).facts == []
        assert await thinking.value(COUNT) == 0

    async def test_the_same_turn_waits_again_after_it_was_done(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await thinking.caller(await thinking.account())
        extract = thinking.services.analysis.extract_episode
        for _ in range(2):
            episode = await self.wait_for(thinking, caller, server)
            server.script(facts("The user prefers window seats."))
            await extract(caller.access.account, caller.keys, episode)
            [memory] = await thinking.services.memory.newest(caller, [TEAM], limit=5)
            await thinking.services.memory.forget(caller.access, memory.id)
        await assert_chain_holds(thinking, caller.access.account)

    async def late(
        self, bench: Bench, caller: Caller, server: OpenAIServer, episode: Any
    ) -> "asyncio.Task[None]":
        """An extraction whose model was asked, and has not answered."""
        asked = len(server.received)
        task = asyncio.create_task(
            bench.services.analysis.extract_episode(caller.access.account, caller.keys, episode)
        )
        while len(server.received) == asked:
            await asyncio.sleep(0.01)
        return task

    async def test_extraction_runs_once(self, thinking: Bench, server: OpenAIServer) -> None:
        caller = await thinking.caller(await thinking.account())
        episode = await self.wait_for(thinking, caller, server)
        extract = thinking.services.analysis.extract_episode
        account, keys = caller.access.account, caller.keys
        answered = threading.Event()
        held = replace(facts("The launch is in May."), held=answered)
        server.script(held, facts("The launch moved to May."))
        late = await self.late(thinking, caller, server, episode)
        await extract(account, keys, episode)
        answered.set()
        with pytest.raises(NotFound):
            await late
        await extract(account, keys, episode)
        assert (await thinking.value(COUNT), server.scripted_left) == (1, 0)

    async def test_forgotten_during_extraction(self, thinking: Bench, server: OpenAIServer) -> None:
        for by_namespace in (False, True):
            caller = await thinking.caller(await thinking.account())
            episode = await self.wait_for(thinking, caller, server)
            answered = threading.Event()
            server.script(replace(facts("The launch moved to May."), held=answered))
            late = await self.late(thinking, caller, server, episode)
            memory = thinking.services.memory
            if by_namespace:
                assert await memory.forget_namespace(caller.access, TEAM) == 1
            else:
                await memory.forget(caller.access, episode)
            answered.set()
            with pytest.raises(NotFound):
                await late
            assert server.scripted_left == 0
            assert await thinking.value(COUNT) == 0
            assert await thinking.value("SELECT count(*) FROM episodes") == 0
            await assert_chain_holds(thinking, caller.access.account)

    async def test_facts_of_an_erased_turn_are_dropped(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await thinking.caller(await thinking.account())
        episode = await self.wait_for(thinking, caller, server)
        account = caller.access.account
        await thinking.services.memory.forget(caller.access, episode)
        done = await thinking.services.deletion.forget_ids(caller.access, [episode])
        assert done.fates == ["already_erased"]
        await thinking.services.analysis.extract_episode(account, caller.keys, episode)
        assert await thinking.value(COUNT) == 0
        assert await thinking.value("SELECT storage_bytes FROM accounts") == 0

    async def test_a_sealed_turn_needs_its_key(self, thinking: Bench, server: OpenAIServer) -> None:
        founder = await thinking.account("sealed")
        caller = await thinking.unlocked(founder, TEAM)
        episode = await self.wait_for(thinking, caller, server)
        locked = await thinking.caller(founder)
        with pytest.raises(NotAllowed):
            await thinking.services.analysis.extract_episode(founder.account, locked.keys, episode)

    async def test_an_altered_turn_is_said_so(self, thinking: Bench, server: OpenAIServer) -> None:
        for statement in (
            "UPDATE blobs SET bytes = set_byte(bytes, 300, get_byte(bytes, 300) # 1)",
            "UPDATE episodes SET epoch = 2",
            "UPDATE episodes SET episode_id = gen_random_uuid()",
            "DELETE FROM blobs",
        ):
            caller = await thinking.caller(await thinking.account())
            await self.wait_for(thinking, caller, server)
            await thinking.sql(statement)
            episode = await thinking.value(
                "SELECT episode_id FROM episodes WHERE account_id = $1", caller.access.account
            )
            with pytest.raises(Corrupted):
                await thinking.services.analysis.extract_episode(
                    caller.access.account, caller.keys, episode
                )

    async def test_a_full_account_keeps_no_turn(
        self, make_bench: BenchMaker, model: LanguageModel, server: OpenAIServer
    ) -> None:
        bench = make_bench(language_model=model, storage_bytes_max=100)
        caller = await bench.caller(await bench.account())
        server.script(AWAY)
        with pytest.raises(QuotaExceeded):
            await analyze(bench, caller, TALK)

    async def test_a_turn_that_waits_in_a_full_account(
        self, make_bench: BenchMaker, model: LanguageModel, server: OpenAIServer
    ) -> None:
        """No model is paid while nothing could be stored; and the turn gives its own room back."""
        bench = make_bench(language_model=model, storage_bytes_max=105_000)
        caller = await bench.caller(await bench.account())
        episode = await self.wait_for(bench, caller, server)
        extract = bench.services.analysis.extract_episode
        asked = len(server.received)
        await bench.sql("UPDATE accounts SET storage_bytes = 5001")
        with pytest.raises(QuotaExceeded):
            await extract(caller.access.account, caller.keys, episode)
        assert len(server.received) == asked
        await bench.sql("UPDATE accounts SET storage_bytes = 5000")
        server.script(facts("Anna prefers tea."))
        await extract(caller.access.account, caller.keys, episode)
        assert await bench.value("SELECT state FROM episodes") == "done"
        assert await bench.value("SELECT storage_bytes FROM accounts") <= 5000

    async def test_an_empty_answer_finishes_the_turn(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await thinking.caller(await thinking.account())
        episode = await self.wait_for(thinking, caller, server)
        server.script(facts())
        extract = thinking.services.analysis.extract_episode
        await extract(caller.access.account, caller.keys, episode)
        assert await thinking.value("SELECT state FROM episodes") == "done"


async def test_a_model_that_is_slower_than_a_request_may_be(
    storage: Storage, lean: Settings, managed: NewKey, server: OpenAIServer
) -> None:
    """Else the request ends with nothing kept, and is sent again to the same end."""
    settings = replace(
        lean,
        request_timeout_s=6.0,
        llm_timeout_s=60.0,
        llm_model=CHAT_MODEL,
        openai_base_url=server.base_url,
        openai_api_key=API_KEY,
    )
    server.script(Step(hang=True))
    asked = {"text": TALK, "relayer": storage.identity.public_key.hex()}
    async with client_of(build_app(storage, settings), signer_of(managed)) as client:
        answer = await client.post("/v1/analyze", json=asked)
        assert answer.status_code == 202, answer.json()
        assert answer.json()["status"] == "pending"
        turn = await client.get(f"/v1/episodes/{answer.json()['episode_id']}")
        assert turn.json()["state"] == "pending"
