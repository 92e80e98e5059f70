"""What an account's setting `redact` decides: what is sealed, embedded and shown to a model."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from relayer.app import build_app
from relayer.clock import utc_now
from relayer.embedding.endpoints import Endpoint
from relayer.embedding.openai import OpenAIEmbedder
from relayer.llm import LanguageModel
from relayer.memories.conversations import Conversation
from relayer.memories.opener import Caller
from relayer.memories.sealed_drafts import SECRET_CHARACTERS_MAX, beginning_without_secrets
from relayer.preferences import AccountSettings
from relayer.query.query import Query
from relayer.record import Draft
from relayer.sealed.keys import AccountId, PublicKey
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.tenants.accounts import Access
from relayer.upkeep.provision import NewKey
from tests.conftest import BenchMaker
from tests.lifespan import living
from tests.openai_server import (
    API_KEY,
    CHAT_MODEL,
    EMBEDDING_MODEL,
    OpenAIServer,
)
from tests.services import TEAM, Bench
from tests.signing import client_of, signer_of
from tests.thinking import server

__all__ = ["server"]  # fixtures

TOKEN = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
SAID = f"FACT: The deployment uses the token {TOKEN} for now."
MARKED = "The deployment uses the token [redacted:github-token] for now."
ASKED = Query(text=f"What uses {TOKEN} now?", namespaces=[TEAM], goal=f"replace {TOKEN}")


@pytest_asyncio.fixture
async def watched(make_bench: BenchMaker, server: OpenAIServer) -> AsyncIterator[Bench]:
    """A relayer whose embedder and language model are one server that keeps what it was sent."""
    embedder = OpenAIEmbedder(
        endpoints=[Endpoint(server.base_url, API_KEY)],
        model=EMBEDDING_MODEL,
        dim=server.embedding_dim,
    )
    model = LanguageModel(base_url=server.base_url, api_key=API_KEY, model=CHAT_MODEL, timeout_s=60)
    yield make_bench(embedder=embedder, language_model=model)
    await embedder.close()
    await model.close()


async def redacting(bench: Bench, key: NewKey, redact: bool) -> Caller:
    """A caller of the account after it chose; the account keeps its turns."""
    before = await bench.caller(key)
    chosen = AccountSettings(redact=redact, keep_turns=True)
    await bench.storage.accounts.choose(before.access, chosen)
    return await bench.caller(key)


async def said(bench: Bench, caller: Caller) -> list[str]:
    """The texts that are stored after the secret was said in a fact, two in bulk, and a turn."""
    stored = await bench.remember(caller, f"One is {TOKEN}.")
    stored += await bench.remember(caller, f"Two are {TOKEN} and {TOKEN}.", f"Three: ({TOKEN})")
    await bench.embed(caller, stored)
    analyzed = await bench.services.analysis.analyze(
        caller, Conversation(text=SAID, namespace=TEAM)
    )
    ids = [item.id for item in (*stored, *analyzed.facts)]
    return [(await bench.services.memory.get(caller, i)).text or "" for i in ids]


def was_sent(server: OpenAIServer, text: str) -> bool:
    return any(text.encode() in request.body for request in server.received)


async def test_nothing_of_a_secret_is_stored_embedded_or_shown_to_a_model(
    watched: Bench, server: OpenAIServer
) -> None:
    """capability 4.26: secrets leave a text before it is sealed, embedded or sent to a model."""
    caller = await watched.caller(await watched.account())
    texts = await said(watched, caller)
    await watched.services.recaller.recall(caller, ASKED)
    await watched.services.answerer.ask(caller, ASKED)
    assert MARKED in texts
    assert [text for text in texts if TOKEN in text] == []
    assert was_sent(server, "[redacted:github-token]")
    assert not was_sent(server, TOKEN)
    assert await watched.texts(caller, TOKEN, mode="keyword") == await watched.texts(
        caller, "[redacted:github-token]", mode="keyword"
    )


async def test_the_answer_counts_what_went(watched: Bench) -> None:
    caller = await watched.caller(await watched.account())
    drafts = [Draft(text=f"{n}: " + f"{TOKEN} " * n, namespace=TEAM) for n in range(3)]
    stored = await watched.stored(caller, drafts)
    assert [item.redacted for item in stored.items] == [
        {},
        {"github-token": 1},
        {"github-token": 2},
    ]
    analyzed = await watched.services.analysis.analyze(
        caller, Conversation(text=SAID, namespace=TEAM)
    )
    assert analyzed.redacted == {"github-token": 1}


async def test_an_account_can_keep_its_secrets(watched: Bench, server: OpenAIServer) -> None:
    """capability 4.26: an account may switch it off, and texts are kept as they were said."""
    caller = await redacting(watched, await watched.account(), redact=False)
    texts = await said(watched, caller)
    assert [text for text in texts if TOKEN not in text] == []
    [again] = await watched.remember(caller, f"Four is {TOKEN}.")
    assert again.redacted == {}
    assert was_sent(server, TOKEN)


async def test_one_accounts_choice_is_nobody_elses(watched: Bench, server: OpenAIServer) -> None:
    await redacting(watched, await watched.account(), redact=False)
    await said(watched, await watched.caller(await watched.account()))
    assert not was_sent(server, TOKEN)


async def test_what_was_kept_is_not_shown_to_a_model_later(
    watched: Bench, server: OpenAIServer
) -> None:
    """Memories of the time without redaction stay, but neither a question nor a turn shows them."""
    founder = await watched.account()
    await said(watched, await redacting(watched, founder, redact=False))
    server.clear()
    caller = await redacting(watched, founder, redact=True)
    answer = await watched.services.answerer.ask(caller, ASKED)
    await watched.services.analysis.analyze(caller, Conversation(text=SAID, namespace=TEAM))
    assert any(TOKEN in (found.memory.text or "") for found in answer.memories)
    assert not was_sent(server, TOKEN)


async def test_a_turn_that_was_kept_is_not_shown_to_a_model_later(
    watched: Bench, server: OpenAIServer
) -> None:
    founder = await watched.account()
    plain = await redacting(watched, founder, redact=False)
    conversation = Conversation(text=SAID, namespace=TEAM)
    kept = await watched.services.analysis.analyze(plain, conversation)
    assert kept.kept is not None
    server.clear()
    caller = await redacting(watched, founder, redact=True)
    await watched.services.analysis.again(caller, kept.kept)
    assert was_sent(server, MARKED)
    assert not was_sent(server, TOKEN)


@pytest.mark.parametrize("redacts", [True, False])
async def test_a_text_whose_vector_is_asked_for_is_redacted_likewise(
    storage: Storage, settings: Settings, managed: NewKey, server: OpenAIServer, redacts: bool
) -> None:
    """Who seals by themselves has texts and queries embedded by MemWal's own route."""
    async with (
        living(build_app(storage, replace(settings, **server.as_embedder))) as app,
        client_of(app, signer_of(managed)) as client,
    ):
        chosen = {"redact": redacts, "relayer": storage.identity.public_key.hex()}
        assert (await client.patch("/v1/settings", json=chosen)).status_code == 200
        answer = await client.post("/api/embed", json={"text": f"It is {TOKEN}."})
    assert len(answer.json()["vector"]) == server.embedding_dim
    assert was_sent(server, TOKEN) is not redacts
    assert was_sent(server, "It is [redacted:github-token].") is redacts


ACCESS = Access(AccountId(bytes(32)), PublicKey(bytes(32)), (), "managed", 1, utc_now())
SHOWN = 500


@pytest.mark.parametrize(
    "secret", [TOKEN, "eyJ" + "hbGciOiJI." + "eyJ" + "zdWIiOiIx" * 300 + "." + "x" * 90]
)
@pytest.mark.parametrize("end", [SHOWN, SHOWN + SECRET_CHARACTERS_MAX])
async def test_a_secret_across_an_end_of_what_is_shown_or_looked_at_is_not_shown(
    secret: str, end: int
) -> None:
    for place in range(end - len(secret) - 2, end + 2, 17):
        text = "tea " * 3000
        text = text[: max(place, 0)] + f" {secret} " + text
        shown = await beginning_without_secrets(ACCESS, text, SHOWN)
        assert not any(secret[n : n + 8] in shown for n in range(len(secret) - 7))
        assert len(shown) <= SHOWN


@pytest.mark.parametrize("length", [0, 1, SHOWN, SHOWN + 1, SHOWN + SECRET_CHARACTERS_MAX, 9_999])
async def test_without_secrets_the_beginning_is_shown_whole(length: int) -> None:
    text = ("tea " * 2500)[:length]
    assert await beginning_without_secrets(ACCESS, text, SHOWN) == text[:SHOWN]


async def test_what_is_not_shown_of_a_long_text_is_not_looked_at() -> None:
    """Looking at all of it would take minutes."""
    text = "tea, and token: " * 2**25
    assert await beginning_without_secrets(ACCESS, text, SHOWN) == text[:SHOWN]
