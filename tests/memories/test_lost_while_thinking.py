"""A key that loses its right while a model thinks about what it sent.

Not here: every other write (`tenants/test_lost_meanwhile.py`).
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from relayer.errors import NotAllowed, NotAuthenticated
from relayer.llm import LanguageModel
from relayer.memories.opener import Caller
from relayer.preferences import AccountSettings
from relayer.query.query import Query
from relayer.sealed.grants import Role
from relayer.sealed.keys import Identity, Namespace
from relayer.upkeep.provision import NewKey
from tests.conftest import TestDatabase
from tests.consolidating import MEETINGS, always, happened, listed, week
from tests.granting import issue, post
from tests.openai_chat import Step
from tests.openai_server import API_KEY, CHAT_MODEL, OpenAIServer
from tests.processes import QUIET, create_account, running_relayer
from tests.services import OTHER, TEAM, Bench
from tests.signing import Signer
from tests.talking import AWAY, MUNICH, analyze, facts
from tests.thinking import model, server, thinking

__all__ = ["model", "server", "thinking"]  # fixtures

SAID = "1. user: I moved to Munich."
LEFT = """
SELECT ((SELECT count(*) FROM memories) + (SELECT count(*) FROM episodes)
        + (SELECT count(*) FROM idempotency) + (SELECT count(*) FROM namespaces)
        + (SELECT count(*) FROM receipts) - (SELECT count(*) FROM grants))::int
"""


@asynccontextmanager
async def held(server: OpenAIServer, answer: Step, work: Awaitable[Any]) -> AsyncIterator[Any]:
    """A task that waits for the model's answer; it comes at the end."""
    answered, asked = threading.Event(), len(server.received)
    server.script(replace(answer, held=answered))
    task = asyncio.ensure_future(work)
    try:
        while len(server.received) == asked:
            assert not task.done(), task
            await asyncio.sleep(0.01)
        yield task
    finally:
        answered.set()
        await asyncio.wait({task})


@dataclass(frozen=True)
class Agent:
    """A key of two namespaces, and a request of it."""

    bench: Bench
    founder: NewKey
    key: NewKey
    caller: Caller

    async def keeps_only(self, *namespaces: Namespace, role: Role = "writer") -> None:
        bench, account = self.bench, self.founder.account
        await bench.revoke(self.founder, self.key.identity.public_key)
        if namespaces:
            keys = [bench.namespace_key(account, name) for name in namespaces]
            signed = await issue(bench, self.founder, self.key.identity, keys, role=role)
            await post(bench, self.founder, self.key.identity, signed)


async def agent(bench: Bench) -> Agent:
    founder = await bench.account()
    key = await bench.key(founder, TEAM, OTHER)
    return Agent(bench, founder, key, await bench.caller(key))


async def test_what_a_revoked_key_sent_to_a_real_relayer_is_not_stored(
    tmp_path: Path, model_dir: Path, fresh_database: TestDatabase, server: OpenAIServer
) -> None:
    """It is revoked by another process, and answered like its next request."""
    llm = {
        "RELAYER_LLM_MODEL": CHAT_MODEL,
        "OPENAI_BASE_URL": server.base_url,
        "OPENAI_API_KEY": API_KEY,
    }
    database = await asyncpg.connect(**fresh_database.connect_args)
    with running_relayer(
        tmp_path / "data", model_dir, database_url=fresh_database.url, **QUIET, **llm
    ) as relayer:
        account = create_account(relayer, "managed")
        named = ("--account", account["account_id"])
        key = relayer.command("key", "add", *named, "--namespaces", "team,other")
        signer = Signer(
            identity=Identity(bytes.fromhex(key["private_key"])), account=account["account_id"]
        )
        asked = {
            "text": SAID,
            "namespace": "team",
            "relayer": account["relayer_key"],
            "idempotency_key": "k",
        }
        async with httpx.AsyncClient(base_url=relayer.url, auth=signer, timeout=60) as client:
            async with held(server, facts(MUNICH), client.post("/v1/analyze", json=asked)) as task:
                revoke = ("key", "revoke", *named, "--key", key["public_key"])
                await asyncio.to_thread(relayer.command, *revoke)
            late, next_one = await task, await client.post("/v1/analyze", json=asked)
        assert (late.status_code, next_one.status_code) == (401, 401)
        assert said(late) == said(next_one)
        assert await database.fetchval(LEFT) == 0
    await database.close()


def said(answer: httpx.Response) -> dict[str, Any]:
    return {name: text for name, text in answer.json().items() if name != "request_id"}


async def test_one_that_keeps_the_namespace_is_not_disturbed(
    thinking: Bench, server: OpenAIServer
) -> None:
    at = await agent(thinking)
    async with held(server, facts(MUNICH), analyze(thinking, at.caller, SAID)) as task:
        await at.keeps_only(TEAM)
        await thinking.key(at.founder, OTHER)
    assert [fact.text for fact in (await task).facts] == [MUNICH]
    assert await thinking.texts(await thinking.caller(at.founder), "user lives") == [MUNICH]


@pytest.mark.parametrize(
    ("answer", "keeps"),
    [
        (facts(MUNICH), False),
        (facts(MUNICH), True),
        (facts(), True),
        (facts(), False),
        (AWAY, False),
    ],
    ids=["facts", "with their turn", "the turn alone", "that there are none", "a turn to wait"],
)
async def test_neither_facts_nor_turn_of_one_that_lost_it_are_stored(
    thinking: Bench, server: OpenAIServer, answer: Step, keeps: bool
) -> None:
    at = await agent(thinking)
    settings = AccountSettings(keep_turns=keeps)
    caller = Caller(replace(at.caller.access, settings=settings), at.caller.keys)
    work = analyze(thinking, caller, SAID, idempotency_key="k")
    async with held(server, answer, work) as task:
        await at.keeps_only(OTHER)
    with pytest.raises(NotAllowed):
        await task
    assert await thinking.value(LEFT) == 0


async def test_a_turn_that_waits_is_not_done_with_by_one_that_lost_it(
    thinking: Bench, server: OpenAIServer
) -> None:
    """Saying it again finds no facts: then the turn that waited would be gone without any."""
    at = await agent(thinking)
    server.script(AWAY)
    turn = (await analyze(thinking, at.caller, SAID)).pending
    async with held(server, facts(), analyze(thinking, at.caller, SAID)) as task:
        await at.keeps_only(TEAM, role="reader")
    with pytest.raises(NotAllowed):
        await task
    rows = await thinking.sql("SELECT episode_id, state FROM episodes")
    assert [tuple(row) for row in rows] == [(turn, "pending")]


@pytest.mark.parametrize("left", [(), (OTHER,)], ids=["nothing", "another namespace"])
async def test_a_run_of_one_that_lost_it_makes_nothing_further(
    hybrid: Bench, model: LanguageModel, server: OpenAIServer, left: Sequence[Namespace]
) -> None:
    bench = hybrid.another(language_model=model)
    at = await agent(bench)
    owner = await bench.caller(at.founder)
    await happened(bench, owner, *MEETINGS, day=week(bench))
    run = (await bench.services.runs.start(at.caller, TEAM))["run_id"]
    work = bench.services.consolidator.work(at.founder.account, owner.keys, run, always)
    summary = Step(content='{"summary": "Anna and the landlord settled everything."}')
    async with held(server, summary, work) as task:
        await at.keeps_only(*left)
    assert await task, "it is over"
    row, done = await listed(bench, owner, run)
    assert (row["state"], done) == ("refused", [])
    assert len(await bench.sql("SELECT FROM memories")) == len(MEETINGS)


async def test_what_waits_for_its_facts_gets_them_without_its_writer(
    thinking: Bench, server: OpenAIServer
) -> None:
    """It was accepted from a key that might write: what follows from it needs no right."""
    at = await agent(thinking)
    server.script(AWAY)
    turn = (await analyze(thinking, at.caller, SAID)).pending
    assert turn is not None
    extract = thinking.services.analysis.extract_episode
    async with held(
        server, facts(MUNICH), extract(at.founder.account, at.caller.keys, turn)
    ) as task:
        await at.keeps_only()
    await task
    assert await thinking.texts(await thinking.caller(at.founder), "user lives") == [MUNICH]


async def test_a_question_of_before_is_answered(thinking: Bench, server: OpenAIServer) -> None:
    """From what the key might read when it was read; a model's answer takes its time."""
    at = await agent(thinking)
    await thinking.remember(at.caller, "Anna prefers tea.")
    query = Query(text="What does Anna drink?", namespaces=[TEAM])
    asking = thinking.services.answerer.ask(at.caller, query)
    async with held(server, Step(content="[1] Tea."), asking) as task:
        await at.keeps_only()
    assert (await task).text == "[1] Tea."


class TestFurtherLooks:
    """They are taken after the model has planned them, by the rights of that moment."""

    plan = Step(content='{"looks": ["coffee"]}')
    query = Query(text="What does Anna drink?", namespaces=[TEAM])

    async def test_one_that_keeps_the_namespace_takes_them(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        at = await agent(thinking)
        await thinking.remember(at.caller, "Anna prefers tea.", "The coffee is gone.")
        looking = thinking.services.deep_recaller.recall(at.caller, self.query)
        async with held(server, self.plan, looking) as task:
            await at.keeps_only(TEAM, role="reader")
        texts = [found.memory.text for found in (await task).recalled.found]
        assert texts == ["Anna prefers tea.", "The coffee is gone."]

    @pytest.mark.parametrize(
        ("left", "refusal"),
        [((), NotAuthenticated), ((OTHER,), NotAllowed)],
        ids=["nothing", "another namespace"],
    )
    async def test_one_that_lost_it_learns_nothing_further(
        self,
        thinking: Bench,
        server: OpenAIServer,
        left: Sequence[Namespace],
        refusal: type[Exception],
    ) -> None:
        at = await agent(thinking)
        await thinking.remember(at.caller, "Anna prefers tea.", "The coffee is gone.")
        looking = thinking.services.deep_recaller.recall(at.caller, self.query)
        async with held(server, self.plan, looking) as task:
            await at.keeps_only(*left)
        with pytest.raises(refusal):
            await task

    async def test_a_relayer_that_lost_its_custody_opens_nothing_further(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        at = await agent(thinking)
        await thinking.remember(at.caller, "Anna prefers tea.", "The coffee is gone.")
        looking = thinking.services.deep_recaller.recall(at.caller, self.query)
        async with held(server, self.plan, looking) as task:
            await thinking.revoke(at.founder, thinking.storage.identity.public_key)
        with pytest.raises(NotAllowed) as caught:
            await task
        assert caught.value.code == "unlock_required"
