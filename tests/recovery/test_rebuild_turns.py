"""Conversations, and what was made of them and of memories, as a rebuild finds them again."""

import pytest

from relayer.llm import LanguageModel
from relayer.sealed.envelope import blob_id
from relayer.upkeep.check import check
from relayer.upkeep.rebuild import REBUILT
from tests.openai_server import OpenAIServer
from tests.rebuilding import Lose, bench, completed, every, lose, rebuilt
from tests.services import Bench
from tests.talking import AWAY, BERLIN, MUNICH, analyze, choose, facts
from tests.thinking import model, server

__all__ = ["bench", "lose", "model", "server"]  # fixtures


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
        assert waits.pending is not None
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
        turn = await lost.services.episodes.get(again, kept.kept)
        assert (turn.text, list(turn.fact_ids)) == (self.KEPT, [kept.facts[0].id])
        keys = await lost.storage.custody.job_keys(founder.account)
        assert keys is not None
        await lost.services.analysis.extract_episode(founder.account, keys, waits.pending)
        assert len(await lost.texts(again, "peanuts", mode="keyword")) == 1
        await completed(lost, founder)
        assert (await check(lost.storage)).problems == []
        # It still goes with what came from it.
        await lost.services.deletion.forget(again.access, kept.facts[0].id)
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
        await thinking.services.deletion.forget(caller.access, kept.facts[0].id)
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
        await lost.services.deletion.forget(again.access, source.id)
        assert [r["memory_id"] for r in await lost.sql("SELECT memory_id FROM memories")] == [
            other.id
        ]
