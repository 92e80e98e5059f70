"""Endpoints that call themselves compatible, and take or answer something else."""

import asyncio
import logging
from pathlib import Path

import numpy as np
import pytest

from relayer.embedding.embedders import TextRefused
from relayer.embedding.endpoints import Endpoint
from relayer.embedding.openai import OpenAIEmbedder
from relayer.errors import Unavailable
from tests.embeddings_server import (
    DIM,
    KEY,
    MODEL,
    SPELLED,
    EmbeddingsServer,
    Taste,
    assert_vectors_of,
    embedder_of,
)
from tests.loopback_proxy import loopback_proxy
from tests.own_server import authority_and_server

TEXTS = [f"text {n}" for n in range(20)]


@pytest.mark.parametrize("spelling", SPELLED)
async def test_the_same_vectors_are_read_from_every_spelling(
    remote: OpenAIEmbedder, server: EmbeddingsServer, spelling: str
) -> None:
    server.always = spelling
    assert_vectors_of(await remote.embed(TEXTS), TEXTS)
    assert_vectors_of(await remote.embed(["one"]), ["one"])
    assert len(server.requests) == 2


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize(
    ("taste", "first", "later"),
    [
        (Taste(is_bare=True), [20, 1, 1, 20], [20]),
        (Taste(is_single=True), [20, 1, 1, 1, *[1] * 20], [1] * 20),
        (Taste(is_single=True, is_bare=True), [20, 1, 1, 1, *[1] * 20], [1] * 20),
        (Taste(texts_max=10), [20, 1, 20, 10, 10], [10, 10]),
        (Taste(texts_max=10, is_bare=True), [20, 1, 1, 20, 20, 10, 10], [10, 10]),
        (Taste(texts_max=7), [20, 1, 20, 10, 10, 5, 5, 5, 5], [5] * 4),
        (Taste(characters_max=99), [20, 1, 20, 10, 10], [10, 10]),
    ],
    ids=["bare", "single", "single-and-bare", "ten", "ten-and-bare", "seven", "characters"],
)
async def test_what_an_endpoint_takes_is_found_out_once(
    remote: OpenAIEmbedder,
    server: EmbeddingsServer,
    taste: Taste,
    first: list[int],
    later: list[int],
    status: int,
) -> None:
    server.taste = taste
    server.taste.status = status
    assert_vectors_of(await remote.embed(TEXTS), TEXTS)
    assert [len(request) for request in server.requests] == first
    server.requests.clear()
    assert_vectors_of(await remote.embed(TEXTS), TEXTS)
    assert [len(request) for request in server.requests] == later


async def test_the_form_is_found_out_by_a_word_of_nobodys(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    server.taste = Taste(is_bare=True)
    assert_vectors_of(await remote.embed(["one"]), ["one"])
    assert server.requests == [["one"], ["memory"], ["memory"], ["one"]]
    assert [sorted(body) for body in server.bodies[2:]] == [["input", "model"]] * 2


@pytest.mark.parametrize("taste", [Taste(is_bare=True), Taste(is_single=True), Taste(texts_max=3)])
async def test_no_call_is_lost_while_another_finds_it_out(
    remote: OpenAIEmbedder, server: EmbeddingsServer, taste: Taste
) -> None:
    server.taste = taste
    parts = [TEXTS[n : n + 5] for n in range(0, 20, 5)]
    answers = await asyncio.gather(*(remote.embed(part) for part in parts))
    assert_vectors_of(np.concatenate(answers), TEXTS)


async def test_another_dimension_than_the_models_own_is_asked_for(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    server.taste = Taste(own_dim=DIM + 3)
    for _ in range(2):
        assert_vectors_of(await remote.embed(["one", "two"]), ["one", "two"])
    assert [body.get("dimensions") for body in server.bodies] == [None, DIM, DIM]


async def test_the_dimension_of_a_model_that_has_no_choice_is_told(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    server.always = "wide"
    with pytest.raises(Unavailable) as caught:
        await remote.embed(["one"])
    assert caught.value.cause == f"dimension {DIM + 1}, not {DIM}"


async def test_an_endpoint_that_answers_for_one_text_of_a_list_is_asked_for_one(
    server: EmbeddingsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is missing is neither passed over nor given up: the log tells of it."""

    def fault(document: dict[str, object], texts: list[str]) -> str | None:
        return "short" if len(texts) > 1 else None

    monkeypatch.setattr(server, "_fault", fault)
    embedder = embedder_of(server)
    with caplog.at_level(logging.WARNING):
        assert_vectors_of(await embedder.embed(TEXTS), TEXTS)
    server.requests.clear()
    assert_vectors_of(await embedder.embed(TEXTS), TEXTS)
    assert {len(request) for request in server.requests} == {1}
    assert "fewer texts at a time: 1" in caplog.text
    await embedder.close()


async def test_one_text_that_is_refused_leaves_the_form_and_the_size_as_they_were(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    assert_vectors_of(await remote.embed(TEXTS), TEXTS)
    server.refuse = "text 0"
    with pytest.raises(TextRefused):
        await remote.embed(TEXTS)
    server.refuse = None
    server.requests.clear()
    server.bodies.clear()
    assert_vectors_of(await remote.embed(TEXTS), TEXTS)
    assert server.requests == [TEXTS]
    assert server.bodies[0]["encoding_format"] == "float"


@pytest.mark.parametrize("taste", [Taste(is_bare=True), Taste(is_single=True), Taste(texts_max=3)])
async def test_an_endpoint_that_has_become_strict_is_understood(
    remote: OpenAIEmbedder, server: EmbeddingsServer, taste: Taste
) -> None:
    server.refuse = "odd"
    with pytest.raises(TextRefused):
        await remote.embed(["too odd"])
    assert_vectors_of(await remote.embed(["one"]), ["one"])
    server.taste = taste
    assert_vectors_of(await remote.embed(TEXTS), TEXTS)


async def test_an_endpoint_under_an_authority_that_the_environment_names(
    server: EmbeddingsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, context = authority_and_server(tmp_path)
    with loopback_proxy(server.url, tls=context) as front:
        for named in (None, authority):
            monkeypatch.delenv("SSL_CERT_FILE", raising=False)
            if named:
                monkeypatch.setenv("SSL_CERT_FILE", str(named))
            embedder = OpenAIEmbedder(
                endpoints=[Endpoint(f"{front.url}/v1", KEY)], model=MODEL, dim=DIM
            )
            if named:
                assert_vectors_of(await embedder.embed(["one"]), ["one"])
            else:
                with pytest.raises(Unavailable):
                    await embedder.embed(["one"])
            await embedder.close()
    assert server.requests == [["one"]]


async def test_each_endpoint_is_remembered_by_itself(
    server: EmbeddingsServer, second: EmbeddingsServer
) -> None:
    embedder = embedder_of(server, second)
    server.taste = Taste(texts_max=10)
    for _ in range(2):
        assert_vectors_of(await embedder.embed(TEXTS), TEXTS)
    server.always = "503,60"
    assert_vectors_of(await embedder.embed(TEXTS), TEXTS)
    assert second.requests == [TEXTS]
    await embedder.close()
