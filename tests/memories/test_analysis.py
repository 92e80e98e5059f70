"""Facts out of conversations, by rules and by a language model.

Not here: turns that wait for the model (`test_waiting_turns.py`), questions (`test_answerer.py`).
"""

from datetime import timedelta

import pytest

from relayer.embedding.endpoints import Endpoint
from relayer.embedding.openai import OpenAIEmbedder
from relayer.errors import Conflict, NotAllowed
from relayer.extraction.facts import FACTS_MAX
from relayer.routes import shapes
from relayer.sealed.receipts import open_receipt
from tests.conftest import BenchMaker
from tests.openai_server import API_KEY, EMBEDDING_MODEL, OpenAIServer
from tests.services import COUNT, OTHER, TEAM, Bench
from tests.talking import TALK, analyze, facts
from tests.thinking import model, server, thinking

__all__ = ["model", "server", "thinking"]  # fixtures


class TestSentences:
    """Without a language model."""

    async def test_keeps_what_is_worth_keeping(self, bench: Bench) -> None:
        """capability 1.21: durable facts, preferences and decisions are found without a model."""
        caller = await bench.caller(await bench.account())
        analyzed = await analyze(bench, caller, TALK + "\n\n3. ok thanks", source="chat/9")
        assert [f.text for f in analyzed.facts] == [
            "I prefer window seats on trains.",
            "We decided to move the launch to May.",
        ]
        assert [f.kind for f in analyzed.facts] == ["preference", "decision"]
        assert analyzed.pending is None
        [receipt] = analyzed.receipts
        opened = open_receipt(receipt, bench.storage.identity.public_key)
        assert (opened.op, len(opened.items)) == ("analyze", 2)
        memory = await bench.services.memory.get(caller, analyzed.facts[0].id)
        assert memory.source == "chat/9"
        assert await bench.texts(caller, "window") == ["I prefer window seats on trains."]

    async def test_the_same_again_stores_nothing_new(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await analyze(bench, caller, TALK)
        again = await analyze(bench, caller, TALK)
        assert list(again.facts) == []
        assert await bench.value(COUNT) == 2

    async def test_nothing_worth_keeping(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        analyzed = await analyze(bench, caller, "1. hm?\n\n2. ok thanks")
        assert (list(analyzed.facts), analyzed.pending, list(analyzed.receipts)) == ([], None, [])

    async def test_at_most_twenty_facts(self, bench: Bench) -> None:
        """capability 0.30: single facts are stored, each as its own blob, at most twenty."""
        caller = await bench.caller(await bench.account())
        text = "\n\n".join(f"{n}. I prefer brand number {n} of coffee." for n in range(1, 40))
        analyzed = await analyze(bench, caller, text)
        assert len(analyzed.facts) == FACTS_MAX
        assert await bench.value("SELECT count(DISTINCT blob_id) FROM memories") == FACTS_MAX

    async def test_needs_a_writer(self, bench: Bench) -> None:
        founder = await bench.account()
        reader = await bench.caller(await bench.key(founder, TEAM, role="reader"))
        with pytest.raises(NotAllowed):
            await analyze(bench, reader, TALK)

    async def test_secrets_are_redacted(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        secret = "ghp_" + "a1B2" * 9
        analyzed = await analyze(bench, caller, f"1. Remember that my token is {secret} for now.")
        assert analyzed.redacted == {"github-token": 1}
        assert "[redacted:github-token]" in analyzed.facts[0].text

    async def test_relative_dates_need_the_turns_time(self, bench: Bench) -> None:
        """capability 0.29: `occurred_at` is the hook's time."""
        caller = await bench.caller(await bench.account())
        said = "1. The deadline of the tax report is tomorrow."
        without = await analyze(bench, caller, said)
        dated = await analyze(bench, caller, said, occurred_at=bench.clock(), namespace=OTHER)
        times = [
            (await bench.services.memory.get(caller, a.facts[0].id)).event_time
            for a in (without, dated)
        ]
        assert times[0] is None
        assert times[1] is not None
        assert times[1].date() == (bench.clock() + timedelta(days=1)).date()

    @pytest.mark.parametrize("day", ["0001-01-01", "0002-01-01", "9998-12-31", "9999-12-31"])
    async def test_a_strange_day_spoils_no_list(self, bench: Bench, day: str) -> None:
        caller = await bench.caller(await bench.account())
        await analyze(bench, caller, f"1. user: Remember that the lease runs until {day}.")
        [memory] = await bench.services.memory.newest(caller, [TEAM], limit=9)
        assert day in str(shapes.memory(memory)["text"])


class TestModel:
    """With a language model."""

    async def test_its_facts_are_stored(self, thinking: Bench, server: OpenAIServer) -> None:
        """capability 1.21: a model's summary is kept in single facts.
        capability 2.16: each point of a model's summary is a memory of its own.
        """
        caller = await thinking.caller(await thinking.account())
        server.script(
            facts("The user prefers window seats.", kind="preference", importance="vital")
        )
        analyzed = await analyze(thinking, caller, TALK)
        [fact] = analyzed.facts
        assert (fact.text, fact.kind, fact.importance) == (
            "The user prefers window seats.", "preference", "vital",
        )  # fmt: skip
        assert await thinking.texts(caller, "window") == ["The user prefers window seats."]

    async def test_related_memories_are_its_context(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await thinking.caller(await thinking.account())
        await thinking.remember(caller, "The launch was planned for April.")
        await thinking.remember(caller, "The launch of another team.", namespace=OTHER)
        server.script(facts("The launch moved to May.", "The launch was planned for April."))
        analyzed = await analyze(thinking, caller, TALK)
        prompt = server.received[-1].json["messages"][-1]["content"]
        assert "1. The launch was planned for April." in prompt
        assert "another team" not in prompt
        assert [f.text for f in analyzed.facts] == ["The launch moved to May."]

    async def test_secrets_do_not_reach_it(self, thinking: Bench, server: OpenAIServer) -> None:
        caller = await thinking.caller(await thinking.account())
        secret = "ghp_" + "a1B2" * 9
        await analyze(thinking, caller, f"FACT: The token is {secret}")
        assert secret.encode() not in server.received[-1].body

    async def test_secrets_do_not_reach_the_embedder(
        self, make_bench: BenchMaker, server: OpenAIServer
    ) -> None:
        """Neither with the question for related memories, nor with the facts."""
        embedder = OpenAIEmbedder(
            endpoints=[Endpoint(server.base_url, API_KEY)],
            model=EMBEDDING_MODEL,
            dim=server.embedding_dim,
        )
        bench = make_bench(embedder=embedder)
        caller = await bench.caller(await bench.account())
        secret = "ghp_" + "a1B2" * 9
        await analyze(bench, caller, f"I always use the token {secret} for deployments.")
        await embedder.close()
        assert server.received
        assert not any(secret.encode() in request.body for request in server.received)

    async def test_more_than_twenty_facts_are_cut(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """capability 0.30: at most twenty facts of a call are kept."""
        caller = await thinking.caller(await thinking.account())
        server.script(facts(*(f"Number {n} is a distinct fact." for n in range(50))))
        analyzed = await analyze(thinking, caller, TALK)
        assert len(analyzed.facts) == FACTS_MAX

    async def test_idempotency_key_replays_the_facts(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await thinking.caller(await thinking.account())
        server.script(facts("The user prefers window seats.", "The launch moved to May."))
        first = await analyze(thinking, caller, TALK, idempotency_key="k")
        asked = len(server.received)
        server.script(facts("Something else entirely."))
        again = await analyze(thinking, caller, TALK, idempotency_key="k")
        assert {f.id: f.text for f in again.facts} == {f.id: f.text for f in first.facts}
        assert all(f.duplicate for f in again.facts)
        assert len(server.received) == asked
        with pytest.raises(Conflict):
            await analyze(thinking, caller, "Another talk.", idempotency_key="k")
        assert await thinking.value(COUNT) == 2

    async def test_replay_leaves_out_what_was_erased(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await thinking.caller(await thinking.account())
        server.script(facts("The user prefers window seats.", "The launch moved to May."))
        first = await analyze(thinking, caller, TALK, idempotency_key="k")
        for fact in first.facts:
            await thinking.services.memory.forget(caller.access, fact.id)
        again = await analyze(thinking, caller, TALK, idempotency_key="k")
        assert (list(again.facts), await thinking.value(COUNT)) == ([], 0)
