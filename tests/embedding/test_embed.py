"""The embedders: the built-in model, and OpenAI-compatible endpoints that misbehave."""

import asyncio
import itertools
import logging
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers

from relayer.embedding import model
from relayer.embedding.builtin import BuiltinEmbedder
from relayer.embedding.cache import CachedEmbedder, CoalescingEmbedder
from relayer.embedding.embedders import Embedder, TextRefused
from relayer.embedding.endpoints import Endpoint, retry_after_s
from relayer.embedding.openai import OpenAIEmbedder
from relayer.embedding.passages import Splitter, load_tokenizer
from relayer.errors import Unavailable
from tests.embeddings_server import ALTERED, DIM, KEY, MODEL, EmbeddingsServer, unit
from tests.model_fixture import model_folder
from tests.sentences import PARAPHRASES, sentences

_MARK = "Marker-7f3a: the vault code is 4471"


@pytest.fixture(scope="module")
def folder() -> Path:
    return model_folder()


@pytest.fixture(scope="module")
def builtin(folder: Path) -> Iterator[BuiltinEmbedder]:
    embedder = BuiltinEmbedder(folder=folder)
    yield embedder
    embedder.close()


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingsServer]:
    async with EmbeddingsServer() as running:
        yield running
        assert running.complaints == []


@pytest.fixture
async def second() -> AsyncIterator[EmbeddingsServer]:
    async with EmbeddingsServer() as running:
        yield running
        assert running.complaints == []


@pytest.fixture
async def remote(server: EmbeddingsServer) -> AsyncIterator[OpenAIEmbedder]:
    embedder = _remote(server)
    yield embedder
    await embedder.close()


@pytest.fixture
async def pair(server: EmbeddingsServer, second: EmbeddingsServer) -> AsyncIterator[OpenAIEmbedder]:
    embedder = _remote(server, second)
    yield embedder
    await embedder.close()


def _remote(*servers: EmbeddingsServer, timeout_s: float = 20.0) -> OpenAIEmbedder:
    return OpenAIEmbedder(
        endpoints=[Endpoint(server.url, KEY) for server in servers],
        model=MODEL,
        dim=DIM,
        timeout_s=timeout_s,
    )


def _same_vectors(vectors: np.ndarray, texts: list[str]) -> None:
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, [unit(text) for text in texts], atol=1e-6)


# The built-in model


async def test_builtin_needs_no_endpoint_and_gives_unit_vectors(builtin: BuiltinEmbedder) -> None:
    """capability 3.20: embeddings without any API."""
    vectors = await builtin.embed(sentences())
    assert (vectors.shape, vectors.dtype) == ((200, 384), np.float32)
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


async def test_builtin_embeds_nothing_and_what_has_no_token(builtin: BuiltinEmbedder) -> None:
    assert (await builtin.embed([])).shape == (0, 384)
    odd = await builtin.embed(["", " \n", "\0\0", "\u200d", "x" * 100_000])
    assert np.isfinite(odd).all()
    np.testing.assert_allclose(np.linalg.norm(odd, axis=1), 1, atol=1e-5)


async def test_vectors_do_not_depend_on_batch_or_order(builtin: BuiltinEmbedder) -> None:
    texts = sentences()
    alone = np.concatenate([await builtin.embed([text]) for text in texts])
    order = np.random.default_rng(5).permutation(len(texts))
    shuffled = await builtin.embed([texts[at] for at in order])
    np.testing.assert_allclose(shuffled, alone[order], atol=1e-6)
    np.testing.assert_array_equal(await builtin.embed(texts), await builtin.embed(texts))


async def test_paraphrases_find_each_other(builtin: BuiltinEmbedder) -> None:
    questions = await builtin.embed([question for question, _ in PARAPHRASES])
    others = [text for text in sentences() if text.isascii() and len(text) > 20]
    known = await builtin.embed([*(answer for _, answer in PARAPHRASES), *others])
    best = (questions @ known.T).argmax(axis=1)
    assert len(others) > 100
    assert best.tolist() == list(range(len(PARAPHRASES)))


async def test_many_calls_at_once_get_their_own_vectors(builtin: BuiltinEmbedder) -> None:
    texts = sentences()[:60]
    want = await builtin.embed(texts)
    got = await asyncio.gather(*(builtin.embed([text]) for text in texts))
    np.testing.assert_allclose(np.concatenate(got), want, atol=1e-6)


async def test_the_event_loop_goes_on_during_an_embedding(builtin: BuiltinEmbedder) -> None:
    call = asyncio.create_task(builtin.embed(sentences()))
    turns = 0
    while not call.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 20
    assert (await call).shape == (200, 384)


async def test_a_query_does_not_wait_for_a_long_call(builtin: BuiltinEmbedder) -> None:
    long_call = asyncio.create_task(builtin.embed(sentences() * 3))
    await asyncio.sleep(0.05)
    await builtin.embed(["Where does Anna live?"])
    assert not long_call.done()
    await long_call


_SERVING = """
import asyncio, sys
from pathlib import Path

def no_network(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen"):
        raise SystemExit(f"{event} while serving")

sys.addaudithook(no_network)
from relayer.embedding.builtin import BuiltinEmbedder

embedder = BuiltinEmbedder(folder=Path(sys.argv[1]))
assert asyncio.run(embedder.embed(["hello"])).shape == (1, 384)
assert embedder.split("hello") == ["hello"]
embedder.close()
assert "onnx" not in sys.modules
assert "pip" not in sys.modules
"""


def test_serving_touches_no_network_and_not_the_graph_builder(folder: Path) -> None:
    path = os.pathsep.join([str(Path(model.__file__).parents[2]), *sys.path])
    command = [sys.executable, "-c", _SERVING, str(folder)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": path})


def test_a_missing_model_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="relayer model fetch") as caught:
        BuiltinEmbedder(folder=tmp_path / "nothing")
    assert caught.value.code == "embedder.model_missing"
    assert str(tmp_path) not in str(caught.value)


# Passages


def _prose(bytes_min: int) -> str:
    text = "\n".join(sentences())
    return (text + "\n") * (bytes_min // len(text.encode()) + 1)


def _letters(alphabet: str, count: int) -> str:
    """Return text that repeats nowhere, so that a passage has one place only."""
    picks = np.random.default_rng(11).integers(0, len(alphabet), count)
    return "".join(alphabet[at] for at in picks)


_LONG = {
    "prose": _prose(25_000),
    "unbroken": _letters("abcdefgh0123456789", 25_000),
    "han": _letters("我们明天坐火车去海边他说好的。，", 12_000),
    "kana": _letters("ねこはまどのそばでていますカタナ", 12_000),
    "thai": _letters("กขคงจฉชซญดตถ", 12_000),
    "accents": "".join(letter + "\u0301" for letter in _letters("aeioun", 8_000)),
    "punctuation": _letters("?!,;:-", 12_000),
    "digits": _letters("0123456789", 12_000),
    "lines": _letters("ab\n", 12_000),
}


# A Thai letter that the vocabulary lacks makes its whole run one unknown token, so 12,000 of them
# are not long for this model.
@pytest.mark.parametrize("name", sorted(set(_LONG) - {"thai"}))
def test_passages_are_within_the_models_real_limit(
    builtin: BuiltinEmbedder, folder: Path, name: str
) -> None:
    """capability 4.25: limits are counted in the model's own tokens, not in characters."""
    text, tokenizer = _LONG[name], load_tokenizer(folder / "tokenizer.json")
    passages = builtin.split(text)
    assert len(passages) > 1
    assert max(len(tokenizer.encode(passage).ids) for passage in passages) <= 256
    if name in {"unbroken", "digits"}:
        assert "[UNK]" not in tokenizer.encode(text).tokens
    _assert_cover(text, passages)


def _assert_cover(text: str, passages: list[str]) -> None:
    """Exact substrings, in order, without a gap."""
    start = end = 0
    for passage in passages:
        start = text.find(passage, max(start, end - 200))  # no overlap is longer
        assert 0 <= start <= end < start + len(passage)
        end = start + len(passage)
    assert end == len(text)


def test_passages_end_with_sentences_and_overlap(builtin: BuiltinEmbedder) -> None:
    text = " ".join(f"Entry {n} says that the pump number {n * 7} was oiled." for n in range(300))
    passages = builtin.split(text)
    assert all(
        passage.startswith("Entry") and passage.rstrip().endswith(".") for passage in passages
    )
    for one, following in itertools.pairwise(passages):
        assert following.split(". ")[0] in one
    assert len(passages) < 40


def test_a_text_within_the_limit_is_one_passage(builtin: BuiltinEmbedder) -> None:
    for text in ("Anna prefers tea.", "  spaced  ", " ", "\0", "x"):
        assert builtin.split(text) == [text]
    assert builtin.split("") == []
    exactly = " ".join(["tea"] * 126)
    assert builtin.split(exactly) == [exactly]
    assert len(builtin.split(exactly + " tea")) == 2


async def test_the_end_of_a_long_text_is_found_by_its_passage(builtin: BuiltinEmbedder) -> None:
    text = _prose(25_000) + "The spare key hangs behind the blue barrel in the boathouse."
    passages = builtin.split(text)
    question = await builtin.embed(["Where is the spare key?"])
    best = (await builtin.embed(passages) @ question[0]).argmax()
    assert best == len(passages) - 1


@pytest.mark.parametrize("name", _LONG)
def test_without_a_tokenizer_bytes_are_counted(name: str) -> None:
    splitter = Splitter(tokenizer=None, tokens_max=500, overlap_tokens=30)
    passages = splitter.split(_LONG[name])
    assert max(len(passage.encode()) for passage in passages) <= 500
    _assert_cover(_LONG[name], passages)


def test_more_tokens_than_bytes_are_counted_as_tokens() -> None:
    """One sign may stand for many characters, which some tokenizers take it apart into first."""
    pieces = [
        ("<unk>", 0.0),
        *((char, -1.0) for char in "\u0627\u0644\u0644\u0647\u0635\u064a\u0639\u0648\u0633\u0645 "),
    ]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.normalizer = normalizers.NFKC()
    text = "\ufdfa" * 4  # 12 bytes; each is 18 characters in compatibility form
    assert len(tokenizer.encode(text).ids) > 40 > len(text.encode())
    splitter = Splitter(tokenizer=tokenizer, tokens_max=40, overlap_tokens=0)
    assert len(splitter.split(text)) > 1


def test_a_limit_smaller_than_a_character_is_refused() -> None:
    with pytest.raises(ValueError, match="8 tokens"):
        Splitter(tokenizer=None, tokens_max=7, overlap_tokens=0)
    with pytest.raises(ValueError, match="overlap"):
        Splitter(tokenizer=None, tokens_max=64, overlap_tokens=32)


def test_a_broken_tokenizer_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"not": "one"}')
    for path in (tmp_path / "tokenizer.json", tmp_path / "none.json"):
        with pytest.raises(Unavailable) as caught:
            load_tokenizer(path)
        assert caught.value.code == "embedder.model_missing"


async def test_an_endpoint_splits_by_its_models_tokenizer_if_it_has_one(folder: Path) -> None:
    endpoints = [Endpoint("http://127.0.0.1:9/v1")]
    counted = OpenAIEmbedder(
        endpoints=endpoints, model=MODEL, dim=DIM, tokens_max=128, tokenizer_folder=folder
    )
    guessed = OpenAIEmbedder(endpoints=endpoints, model=MODEL, dim=DIM, tokens_max=128)
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    passages = counted.split(_LONG["prose"])
    assert 64 < max(len(tokenizer.encode(passage).ids) for passage in passages) <= 128
    assert max(len(passage.encode()) for passage in guessed.split(_LONG["prose"])) <= 120
    await counted.close()
    await guessed.close()


# OpenAI-compatible endpoints


async def test_remote_vectors_are_normalised_and_in_order(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    """capability 2.20: the model's name and dimension are part of the model id."""
    _same_vectors(await remote.embed(["one", "two", "three"]), ["one", "two", "three"])
    assert server.requests == [["one", "two", "three"]]
    assert "dimensions" not in server.bodies[0]
    assert (remote.model_id, remote.dim) == (f"{MODEL}/{DIM}", DIM)
    assert (await remote.embed([])).shape == (0, DIM)


async def test_remote_requests_are_bounded(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    texts = [f"text {n}" for n in range(150)]
    _same_vectors(await remote.embed(texts), texts)
    assert [len(request) for request in server.requests] == [64, 64, 22]
    server.requests.clear()
    large = ["é" * 50_000 + str(n) for n in range(4)]
    _same_vectors(await remote.embed(large), large)
    assert [len(request) for request in server.requests] == [2, 2]


async def test_the_dimension_is_sent_on_request(server: EmbeddingsServer) -> None:
    embedder = OpenAIEmbedder(
        endpoints=[Endpoint(server.url, KEY)], model=MODEL, dim=DIM, request_dim=True
    )
    _same_vectors(await embedder.embed(["one"]), ["one"])
    assert server.bodies[0]["dimensions"] == DIM
    await embedder.close()


@pytest.mark.parametrize(
    "fault", [*ALTERED, "not-gzip", "cut", "disconnect", "endless", "401", "418"]
)
async def test_a_faulty_answer_is_never_believed(
    remote: OpenAIEmbedder, server: EmbeddingsServer, fault: str
) -> None:
    server.always = fault
    with pytest.raises(Unavailable) as caught:
        await remote.embed(["one", "two"])
    assert caught.value.code == "embedder.unavailable"
    assert "retry-after" in caught.value.headers
    assert not isinstance(caught.value, TextRefused)
    assert len(server.requests) == (3 if fault in {"cut", "disconnect"} else 1)


@pytest.mark.parametrize(
    "fault", [*ALTERED, "cut", "disconnect", "endless", "400", "401", "404", "429", "500,7", "503"]
)
async def test_another_endpoint_takes_over(
    pair: OpenAIEmbedder, server: EmbeddingsServer, second: EmbeddingsServer, fault: str
) -> None:
    """capability 4.16: endpoints stand in for each other in order, with the same model."""
    server.always = fault
    _same_vectors(await pair.embed(["one", "two"]), ["one", "two"])
    assert len(server.requests) == 1
    assert second.requests == [["one", "two"]]


async def test_the_first_endpoint_is_preferred_again(
    pair: OpenAIEmbedder, server: EmbeddingsServer, second: EmbeddingsServer
) -> None:
    server.script.append("429,0")
    for _ in range(3):
        _same_vectors(await pair.embed(["one"]), ["one"])
    assert len(server.requests) == 4
    assert second.requests == []


@pytest.mark.parametrize("fault", ["429", "429,0", "500", "502", "503,0", "504", "disconnect"])
async def test_a_passing_fault_is_retried(
    remote: OpenAIEmbedder, server: EmbeddingsServer, fault: str
) -> None:
    """capability 4.16: a passing fault is retried, a few times only."""
    server.script.extend([fault, fault])
    _same_vectors(await remote.embed(["one"]), ["one"])
    assert len(server.requests) == 3


async def test_calls_that_fail_together_count_as_one_failure(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    server.script.extend(["503"] * 8)
    texts = [f"text {n}" for n in range(8)]
    # Counted as eight, they would let the endpoint rest for longer than a call would wait.
    answers = await asyncio.gather(*(remote.embed([text]) for text in texts))
    _same_vectors(np.concatenate(answers), texts)
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


async def test_a_resting_endpoint_is_passed_over(
    pair: OpenAIEmbedder, server: EmbeddingsServer, second: EmbeddingsServer
) -> None:
    server.always = "429,120"
    for _ in range(3):
        _same_vectors(await pair.embed(["one"]), ["one"])
    assert len(server.requests) == 1
    assert len(second.requests) == 3


@pytest.mark.parametrize("fault", ["hang", "trickle"])
async def test_a_hanging_endpoint_leaves_time_for_the_next(
    server: EmbeddingsServer, second: EmbeddingsServer, fault: str
) -> None:
    embedder = _remote(server, second, timeout_s=3)
    server.always = fault
    for _ in range(2):
        _same_vectors(await embedder.embed(["one"]), ["one"])
    assert len(server.requests) == 1  # it rests, so the second call lost no time with it
    await embedder.close()


@pytest.mark.parametrize("fault", ["hang", "trickle"])
async def test_a_deadline_ends_a_hanging_call(server: EmbeddingsServer, fault: str) -> None:
    embedder = _remote(server, timeout_s=1)
    server.always = fault
    with pytest.raises(Unavailable) as caught:
        await embedder.embed(["one"])
    assert caught.value.code == "embedder.unavailable"
    assert len(server.requests) == 1
    await embedder.close()


async def test_nobody_listening_is_unavailable(server: EmbeddingsServer) -> None:
    # Port 9 is below what a listening test server could get, and nothing here serves it.
    endpoints = [Endpoint("http://127.0.0.1:9/v1", KEY), Endpoint(server.url, KEY)]
    alone = OpenAIEmbedder(endpoints=endpoints[:1], model=MODEL, dim=DIM)
    with pytest.raises(Unavailable):
        await alone.embed(["one"])
    await alone.close()
    embedder = OpenAIEmbedder(endpoints=endpoints, model=MODEL, dim=DIM)
    _same_vectors(await embedder.embed(["one"]), ["one"])
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
    server.script.extend([status] * 8)
    for _ in range(8):  # were these failures, the endpoint would rest by now
        with pytest.raises(TextRefused) as caught:
            await remote.embed(["too odd"])
        assert caught.value.code == "embedder.unavailable"
    _same_vectors(await remote.embed(["one"]), ["one"])
    assert len(server.requests) == 9


async def test_what_is_not_text_is_refused_and_harms_no_later_call(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    with pytest.raises(TextRefused):
        await remote.embed(["half a pair: \ud800"])
    _same_vectors(await remote.embed(["one"]), ["one"])
    assert server.requests == [["one"]]


async def test_a_refusal_and_an_outage_together_are_an_outage(
    pair: OpenAIEmbedder, server: EmbeddingsServer, second: EmbeddingsServer
) -> None:
    server.always, second.always = "400", "401"
    with pytest.raises(Unavailable) as caught:
        await pair.embed(["one"])
    assert not isinstance(caught.value, TextRefused)


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


# The cache


def _cached(inner: Embedder, entries_max: int = 100) -> CachedEmbedder:
    return CachedEmbedder(inner=inner, entries_max=entries_max, secret=b"s" * 32)


async def test_unchanged_texts_are_not_embedded_again(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    """capability 2.21: unchanged texts are not embedded again.
    capability 4.6: embeddings are cached.
    """
    cached = _cached(remote)
    for texts in (["one", "two"], ["two", "one", "two"], ["two", "three"]):
        _same_vectors(await cached.embed(texts, account=b"a"), texts)
    assert server.requests == [["one", "two"], ["three"]]
    assert (await cached.embed([], account=b"a")).shape == (0, DIM)
    assert (cached.model_id, cached.dim) == (remote.model_id, DIM)


async def test_equal_texts_in_one_call_are_embedded_once(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    _same_vectors(await _cached(remote).embed(["one", "two", "one"]), ["one", "two", "one"])
    assert server.requests == [["one", "two"]]


async def test_the_cache_is_never_shared_across_accounts(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    cached = _cached(remote)
    for account in (b"a", b"b", b"", b"a", b"b"):
        _same_vectors(await cached.embed(["one"], account=account), ["one"])
    assert server.requests == [["one"]] * 3


async def test_the_cache_is_bounded_and_drops_what_was_used_longest_ago(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    cached = _cached(remote, entries_max=2)
    for text in ("one", "two", "one", "three", "one"):
        await cached.embed([text])
    assert server.requests == [["one"], ["two"], ["three"]]
    await cached.embed(["two"])
    assert server.requests[3:] == [["two"]]
    many = [f"text {n}" for n in range(10)]
    _same_vectors(await cached.embed(many), many)


async def test_a_failure_is_not_cached_and_callers_cannot_alter_an_entry(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    cached = _cached(remote)
    server.script.append("404")
    with pytest.raises(Unavailable):
        await cached.embed(["one"])
    first = await cached.embed(["one"])
    first[:] = 0
    _same_vectors(await cached.embed(["one"]), ["one"])


def test_the_cache_splits_like_what_it_wraps(builtin: BuiltinEmbedder) -> None:
    want = builtin.split(_LONG["prose"])
    assert _cached(CoalescingEmbedder(inner=builtin)).split(_LONG["prose"]) == want


# Calls of the same moment


async def test_calls_of_the_same_moment_go_as_one(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    embedder = CoalescingEmbedder(inner=remote, flights_max=4)
    calls = [["one"], ["two", "three"], ["four"]]
    answers = await asyncio.gather(*(embedder.embed(texts) for texts in calls))
    for texts, vectors in zip(calls, answers, strict=True):
        _same_vectors(vectors, texts)
    assert server.requests == [["one", "two", "three", "four"]]


async def test_calls_gather_while_a_batch_is_under_way(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    embedder = CoalescingEmbedder(inner=remote, texts_max=4)
    server.hold.clear()
    first = asyncio.create_task(embedder.embed(["first"]))
    await server.asked.wait()
    others = [asyncio.create_task(embedder.embed([f"text {n}"])) for n in range(6)]
    await asyncio.sleep(0.05)
    assert len(server.requests) == 1
    server.hold.set()
    _same_vectors(await first, ["first"])
    for n, other in enumerate(others):
        _same_vectors(await other, [f"text {n}"])
    assert [len(request) for request in server.requests] == [1, 4, 2]


async def test_large_and_empty_calls_go_on_their_own(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    embedder = CoalescingEmbedder(inner=remote, texts_max=4)
    large = [f"text {n}" for n in range(100)]
    answers = await asyncio.gather(embedder.embed(["one"]), embedder.embed(large))
    _same_vectors(answers[1], large)
    assert sorted(len(request) for request in server.requests) == [1, 36, 64]
    assert (await embedder.embed([])).shape == (0, DIM)


async def test_a_failure_reaches_every_caller(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    embedder = CoalescingEmbedder(inner=remote)
    server.script.append("garbage")
    calls = (embedder.embed([f"text {n}"]) for n in range(5))
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Unavailable] * 5
    assert len(server.requests) == 1
    _same_vectors(await embedder.embed(["one"]), ["one"])


async def test_a_cancelled_caller_does_not_hurt_the_others(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    embedder = CoalescingEmbedder(inner=remote)
    server.hold.clear()
    early = [asyncio.create_task(embedder.embed([f"early {n}"])) for n in range(3)]
    await server.asked.wait()
    late = [asyncio.create_task(embedder.embed([f"late {n}"])) for n in range(3)]
    await asyncio.sleep(0)
    early[0].cancel()
    late[0].cancel()
    await asyncio.sleep(0)
    server.hold.set()
    outcomes = await asyncio.gather(*early, *late, return_exceptions=True)
    assert [at for at, o in enumerate(outcomes) if isinstance(o, asyncio.CancelledError)] == [0, 3]
    for at, text in ((1, "early 1"), (2, "early 2"), (4, "late 1"), (5, "late 2")):
        _same_vectors(outcomes[at], [text])
    assert server.requests[1] == ["late 1", "late 2"]


async def test_a_refused_text_fails_only_its_own_caller() -> None:
    async with EmbeddingsServer(refuse="odd") as server:
        remote = _remote(server)
        embedder = CoalescingEmbedder(inner=remote)
        calls = (embedder.embed([text]) for text in ("one", "odd", "two"))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(outcomes[1], TextRefused)
        _same_vectors(outcomes[0], ["one"])
        _same_vectors(outcomes[2], ["two"])
        await remote.close()


async def test_the_queue_is_bounded(remote: OpenAIEmbedder, server: EmbeddingsServer) -> None:
    embedder = CoalescingEmbedder(inner=remote, waiting_max=3)
    server.hold.clear()
    first = asyncio.create_task(embedder.embed(["first"]))
    await server.asked.wait()
    waiting = [asyncio.create_task(embedder.embed([f"text {n}"])) for n in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable) as caught:
        await embedder.embed(["one too many"])
    assert caught.value.code == "embedder.busy"
    server.hold.set()
    _same_vectors(await first, ["first"])
    await asyncio.gather(*waiting)


async def test_calls_that_follow_each_other_never_wait_for_a_flight_that_is_over(
    builtin: BuiltinEmbedder,
) -> None:
    embedder = CoalescingEmbedder(inner=builtin, flights_max=1)

    async def conversation(name: int) -> None:
        for turn in range(10):
            assert (await embedder.embed([f"{name} {turn}"])).shape == (1, 384)

    async with asyncio.timeout(60):
        await asyncio.gather(*(conversation(name) for name in range(8)))


async def test_coalesced_vectors_are_those_of_single_calls(builtin: BuiltinEmbedder) -> None:
    embedder = CoalescingEmbedder(inner=builtin)
    texts = sentences()[:40]
    together = await asyncio.gather(*(embedder.embed([text]) for text in texts))
    np.testing.assert_allclose(np.concatenate(together), await builtin.embed(texts), atol=1e-6)


async def test_the_worker_thread_ends_with_the_embedder(folder: Path) -> None:
    before = set(threading.enumerate())
    embedder = BuiltinEmbedder(folder=folder, threads=1)
    await embedder.embed(["one"])
    started = {thread for thread in set(threading.enumerate()) - before if "embed" in thread.name}
    assert len(started) == 1
    embedder.close()
    assert not started & set(threading.enumerate())


def test_what_the_model_knows_of_a_text(builtin: BuiltinEmbedder) -> None:
    for text, known in (("", 1.0), ("Where is OPS-4821?", 1.0), ("🙂 tea", 0.5), ("🙂🙂", 0.0)):
        assert builtin.known(text) == pytest.approx(known), text
    assert builtin.known("我昨天在海边吃了什么？") < 0.5
    endpoint = [Endpoint("http://127.0.0.1:1/v1", None)]
    assert OpenAIEmbedder(endpoints=endpoint, model="m", dim=8).known("🙂") == 1.0
