"""OpenAI-compatible endpoints that misbehave."""

import asyncio
import logging

import numpy as np
import pytest

from relayer.database.vectors import SENT, TURNED
from relayer.embedding.building import build_embedder, for_storing
from relayer.embedding.embedders import TextRefused
from relayer.embedding.endpoints import Endpoint, Failure, Fallback, retry_after_s
from relayer.embedding.openai import OpenAIEmbedder
from relayer.errors import Unavailable
from relayer.settings import Settings, SettingsError
from tests.embeddings_server import (
    ALTERED,
    DIM,
    KEY,
    MODEL,
    EmbeddingsServer,
    Taste,
    assert_vectors_of,
    embedder_of,
)

_MARK = "Marker-7f3a: the vault code is 4471"
_THREE = ["one", "two", "three"]
# Asked again in vain: after a broken connection, for fewer texts, for another dimension.
_REQUESTS = {"cut": 3, "disconnect": 3, "short": 3, "empty": 3, "surplus": 3}
_REQUESTS |= {"narrow": 2, "wide": 2}


async def test_remote_vectors_are_normalised_and_in_order(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    """capability 2.20: the model's name and dimension are part of the model id."""
    assert_vectors_of(await remote.embed(["one", "two", "three"]), ["one", "two", "three"])
    assert server.requests == [["one", "two", "three"]]
    assert "dimensions" not in server.bodies[0]
    assert (remote.model_id, remote.dim) == (f"{MODEL}/{DIM}", DIM)
    assert (await remote.embed([])).shape == (0, DIM)


async def test_remote_requests_are_bounded(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    texts = [f"text {n}" for n in range(150)]
    assert_vectors_of(await remote.embed(texts), texts)
    assert [len(request) for request in server.requests] == [64, 64, 22]
    server.requests.clear()
    large = ["é" * 50_000 + str(n) for n in range(4)]
    assert_vectors_of(await remote.embed(large), large)
    assert [len(request) for request in server.requests] == [2, 2]


@pytest.mark.parametrize(
    "fault", [*ALTERED, "not-gzip", "cut", "disconnect", "endless", "401", "418"]
)
async def test_a_faulty_answer_is_never_believed(
    remote: OpenAIEmbedder, server: EmbeddingsServer, fault: str
) -> None:
    server.always = fault
    with pytest.raises(Unavailable) as caught:
        await remote.embed(_THREE)
    assert caught.value.code == "embedder.unavailable"
    assert caught.value.cause
    assert "retry-after" in caught.value.headers
    assert not isinstance(caught.value, TextRefused)
    assert len(server.requests) == _REQUESTS.get(fault, 1)


@pytest.mark.parametrize(
    "fault", [*ALTERED, "cut", "disconnect", "endless", "400", "401", "404", "429", "500,7", "503"]
)
async def test_another_endpoint_takes_over(
    pair: OpenAIEmbedder, server: EmbeddingsServer, second: EmbeddingsServer, fault: str
) -> None:
    """capability 4.16: endpoints stand in for each other in order, with the same model."""
    server.always = fault
    assert_vectors_of(await pair.embed(_THREE), _THREE)
    assert second.requests == [_THREE]


async def test_the_first_endpoint_is_preferred_again(
    pair: OpenAIEmbedder, server: EmbeddingsServer, second: EmbeddingsServer
) -> None:
    server.script.append("429,0")
    for _ in range(3):
        assert_vectors_of(await pair.embed(["one"]), ["one"])
    assert len(server.requests) == 4
    assert second.requests == []


@pytest.mark.parametrize("fault", ["429", "429,0", "500", "502", "503,0", "504", "disconnect"])
async def test_a_passing_fault_is_retried(
    remote: OpenAIEmbedder, server: EmbeddingsServer, fault: str
) -> None:
    """capability 4.16: a passing fault is retried, a few times only."""
    server.script.extend([fault, fault])
    assert_vectors_of(await remote.embed(["one"]), ["one"])
    assert len(server.requests) == 3


async def test_calls_that_fail_together_count_as_one_failure(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    server.script.extend(["503"] * 8)
    texts = [f"text {n}" for n in range(8)]
    # Counted as eight, they would let the endpoint rest for longer than a call would wait.
    answers = await asyncio.gather(*(remote.embed([text]) for text in texts))
    assert_vectors_of(np.concatenate(answers), texts)
    assert len(server.requests) == 16


async def test_retries_are_bounded(remote: OpenAIEmbedder, server: EmbeddingsServer) -> None:
    server.always = "503,0"
    with pytest.raises(Unavailable):
        await remote.embed(["one"])
    assert len(server.requests) == 3


async def test_a_long_retry_after_is_told_and_respected_by_later_calls(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    server.always = "429,120"
    for _ in range(3):
        with pytest.raises(Unavailable) as caught:
            await remote.embed(["one"])
        assert 60 < int(caught.value.headers["retry-after"]) <= 120
    assert len(server.requests) == 1


async def test_a_query_does_not_wait_for_an_endpoint_that_rests(server: EmbeddingsServer) -> None:
    """Words find meanwhile; what is stored is embedded when the endpoint may be asked again."""
    queries = build_embedder(
        Settings(
            embedding_model=MODEL,
            embedding_dim=DIM,
            embedding_base_urls=server.url,
            openai_api_key=KEY,
        )
    )
    assert queries is not None
    storing = for_storing(queries)
    assert storing is not None
    server.script.append("503")
    assert_vectors_of(await queries.embed(["one"]), ["one"])  # for a moment it does
    server.script.append("429,1")
    with pytest.raises(Unavailable):
        await queries.embed(["two"])
    assert server.requests == [["one"], ["one"], ["two"]]
    assert_vectors_of(await storing.embed(["two"]), ["two"])
    await queries.close()


async def test_what_began_before_a_rest_does_not_end_it() -> None:
    async def slow(_: str) -> str | Failure:
        begun.set()
        await end.wait()
        return "vectors"

    async def limited(_: str) -> str | Failure:
        return Failure("status 429", retry=True, rest_s=300)

    fallback, begun, end = Fallback(clients=["only"]), asyncio.Event(), asyncio.Event()
    early = asyncio.create_task(fallback.ask(slow, timeout_s=300))
    await begun.wait()
    assert isinstance(await fallback.ask(limited, timeout_s=300), Failure)
    end.set()
    assert await early == "vectors"
    later = await fallback.ask(slow, timeout_s=300)
    assert isinstance(later, Failure)
    assert later.cause == "resting"


async def test_an_endpoint_that_mostly_answers_hardly_rests() -> None:
    async def slow(_: str) -> str | Failure:
        begun.set()
        await end.wait()
        return "vectors"

    async def fails(_: str) -> str | Failure:
        return Failure("status 500")

    fallback, begun, end = Fallback(clients=["only"]), asyncio.Event(), asyncio.Event()
    for _ in range(6):
        begun.clear()
        end.clear()
        beside = asyncio.create_task(fallback.ask(slow, timeout_s=300))
        await begun.wait()
        assert isinstance(await fallback.ask(fails, timeout_s=300), Failure)
        end.set()
        assert await beside == "vectors"
    assert await fallback.ask(slow, timeout_s=300) == "vectors"


async def test_a_resting_endpoint_is_passed_over(
    pair: OpenAIEmbedder, server: EmbeddingsServer, second: EmbeddingsServer
) -> None:
    server.always = "429,120"
    for _ in range(3):
        assert_vectors_of(await pair.embed(["one"]), ["one"])
    assert len(server.requests) == 1
    assert len(second.requests) == 3


@pytest.mark.parametrize("fault", ["hang", "trickle"])
async def test_a_hanging_endpoint_leaves_time_for_the_next(
    server: EmbeddingsServer, second: EmbeddingsServer, fault: str
) -> None:
    embedder = embedder_of(server, second, timeout_s=3)
    server.always = fault
    for _ in range(2):
        assert_vectors_of(await embedder.embed(["one"]), ["one"])
    assert len(server.requests) == 1  # it rests, so the second call lost no time with it
    await embedder.close()


@pytest.mark.parametrize("fault", ["hang", "trickle"])
async def test_a_deadline_ends_a_hanging_call(server: EmbeddingsServer, fault: str) -> None:
    embedder = embedder_of(server, timeout_s=1)
    server.always = fault
    with pytest.raises(Unavailable) as caught:
        await embedder.embed(["one"])
    assert caught.value.code == "embedder.unavailable"
    assert len(server.requests) == 1
    await embedder.close()


async def test_a_slow_model_is_asked_for_fewer_texts_at_a_time(server: EmbeddingsServer) -> None:
    """Else one that cannot do a full request in its time would be asked for the same for ever."""
    embedder = embedder_of(server, timeout_s=2)
    texts = [f"text {n}" for n in range(20)]
    server.script.append("hang")
    with pytest.raises(Unavailable) as caught:
        await embedder.embed(texts)
    await asyncio.sleep(int(caught.value.headers["retry-after"]))
    assert_vectors_of(await embedder.embed(texts), texts)
    assert [len(request) for request in server.requests[:2]] == [20, 10]
    while len(server.requests[-1]) < len(texts):  # until it was quick with half of them
        assert_vectors_of(await embedder.embed(texts), texts)
    await embedder.close()


async def test_nobody_listening_is_unavailable(server: EmbeddingsServer) -> None:
    # Port 9 is below what a listening test server could get, and nothing here serves it.
    endpoints = [Endpoint("http://127.0.0.1:9/v1", KEY), Endpoint(server.url, KEY)]
    alone = OpenAIEmbedder(endpoints=endpoints[:1], model=MODEL, dim=DIM)
    with pytest.raises(Unavailable):
        await alone.embed(["one"])
    await alone.close()
    embedder = OpenAIEmbedder(endpoints=endpoints, model=MODEL, dim=DIM)
    assert_vectors_of(await embedder.embed(["one"]), ["one"])
    await embedder.close()


async def test_redirects_are_not_followed(
    remote: OpenAIEmbedder, server: EmbeddingsServer, second: EmbeddingsServer
) -> None:
    server.always, server.moved_to = "moved", second.url
    with pytest.raises(Unavailable):
        await remote.embed([_MARK])
    assert second.requests == []


async def test_an_endless_answer_is_not_read_to_the_end(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    server.always = "endless"
    with pytest.raises(Unavailable):
        await remote.embed(["one"])
    assert server.endless_bytes < 16 * 2**20  # the buffers of both sockets


@pytest.mark.parametrize("status", ["400", "413", "422"])
async def test_a_refused_text_is_told_apart_and_harms_no_later_call(
    remote: OpenAIEmbedder, server: EmbeddingsServer, status: str
) -> None:
    server.refuse, server.taste = "odd", Taste(status=int(status))
    for _ in range(8):  # were these failures, the endpoint would rest by now
        with pytest.raises(TextRefused) as caught:
            await remote.embed(["too odd"])
        assert caught.value.code == "embedder.unavailable"
    assert_vectors_of(await remote.embed(["one"]), ["one"])
    assert server.requests == [["too odd"], ["memory"], *[["too odd"]] * 7, ["one"]]


async def test_what_is_not_text_is_refused_and_harms_no_later_call(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    with pytest.raises(TextRefused):
        await remote.embed(["half a pair: \ud800"])
    assert_vectors_of(await remote.embed(["one"]), ["one"])
    assert server.requests == [["one"]]


async def test_a_refusal_and_an_outage_together_are_an_outage(
    pair: OpenAIEmbedder, server: EmbeddingsServer, second: EmbeddingsServer
) -> None:
    server.always, second.always = "400", "401"
    with pytest.raises(Unavailable) as caught:
        await pair.embed(["one"])
    assert not isinstance(caught.value, TextRefused)


async def test_a_refusal_while_another_endpoint_rests_is_an_outage(
    pair: OpenAIEmbedder, server: EmbeddingsServer, second: EmbeddingsServer
) -> None:
    """The one that rests may take the text: whoever is told of a refusal gives its vector up."""
    server.always = "400"
    second.script.append("429,120")
    for _ in range(2):
        with pytest.raises(Unavailable) as caught:
            await pair.embed(["one"])
        assert not isinstance(caught.value, TextRefused)
        assert 60 < int(caught.value.headers["retry-after"]) <= 120
    assert (server.requests.count(["one"]), len(second.requests)) == (2, 1)


@pytest.mark.parametrize("fault", ["400", "500", "garbage", "disconnect", "moved"])
async def test_no_text_key_or_address_in_errors_and_logs(
    remote: OpenAIEmbedder, server: EmbeddingsServer, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.always = fault
    with caplog.at_level(logging.DEBUG), pytest.raises(Unavailable) as caught:
        await remote.embed([_MARK])
    assert server.requests[0] == [_MARK]
    error: BaseException | None = caught.value
    while error is not None:
        assert _MARK not in str(error)
        assert server.url not in str(error)
        error = error.__cause__ or error.__context__
    assert caught.value.__context__ is None
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("relayer")]
    assert ours
    assert all(server.url not in message for message in ours)
    everything = "\n".join(record.getMessage() for record in caplog.records)
    assert _MARK not in everything
    assert KEY not in everything
    assert KEY not in repr(Endpoint(server.url, KEY))


async def test_an_endpoint_is_needed() -> None:
    with pytest.raises(ValueError, match="endpoint"):
        OpenAIEmbedder(endpoints=[], model=MODEL, dim=DIM)


def test_retry_after_is_read_as_number_or_date() -> None:
    assert retry_after_s("7") == 7
    assert retry_after_s("0.5") == 0.5
    assert retry_after_s("-3") == 0
    assert retry_after_s("1e9") == 3600
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert retry_after_s("Fri, 31 Dec 9998 23:59:59 GMT") == 3600
    for value in (None, "", "soon", "nan", "inf", "Wed, 99 Oct 2015"):
        assert retry_after_s(value) is None


@pytest.mark.parametrize("name", [TURNED, SENT])
def test_no_model_is_called_what_uploads_vectors_are_of(name: str) -> None:
    with pytest.raises(SettingsError, match="RELAYER_EMBEDDING_MODEL"):
        Settings(embedding_model=name)
