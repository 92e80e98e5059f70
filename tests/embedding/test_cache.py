"""Vectors that are kept, and calls of one moment that go as one."""

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest

from relayer.embedding.builtin import BuiltinEmbedder
from relayer.embedding.cache import CachedEmbedder, CoalescingEmbedder
from relayer.embedding.embedders import FULL_COVERAGE, Embedder, TextRefused
from relayer.embedding.endpoints import Endpoint
from relayer.embedding.openai import OpenAIEmbedder
from relayer.errors import Unavailable
from tests.embedding.long_texts import LONG
from tests.embeddings_server import (
    DIM,
    EmbeddingsServer,
    assert_vectors_of,
    embedder_of,
)
from tests.sentences import sentences


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
        assert_vectors_of(await cached.embed(texts, account=b"a"), texts)
    assert server.requests == [["one", "two"], ["three"]]
    assert (await cached.embed([], account=b"a")).shape == (0, DIM)
    assert (cached.model_id, cached.dim) == (remote.model_id, DIM)


async def test_equal_texts_in_one_call_are_embedded_once(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    assert_vectors_of(await _cached(remote).embed(["one", "two", "one"]), ["one", "two", "one"])
    assert server.requests == [["one", "two"]]


async def test_the_cache_is_never_shared_across_accounts(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    cached = _cached(remote)
    for account in (b"a", b"b", b"", b"a", b"b"):
        assert_vectors_of(await cached.embed(["one"], account=account), ["one"])
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
    assert_vectors_of(await cached.embed(many), many)


async def test_a_failure_is_not_cached_and_callers_cannot_alter_an_entry(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    cached = _cached(remote)
    server.script.append("404")
    with pytest.raises(Unavailable):
        await cached.embed(["one"])
    first = await cached.embed(["one"])
    first[:] = 0
    assert_vectors_of(await cached.embed(["one"]), ["one"])


def test_the_cache_splits_like_what_it_wraps(builtin: BuiltinEmbedder) -> None:
    want = builtin.split(LONG["prose"])
    assert _cached(CoalescingEmbedder(inner=builtin)).split(LONG["prose"]) == want


async def test_calls_of_the_same_moment_go_as_one(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    embedder = CoalescingEmbedder(inner=remote, flights_max=4)
    calls = [["one"], ["two", "three"], ["four"]]
    answers = await asyncio.gather(*(embedder.embed(texts) for texts in calls))
    for texts, vectors in zip(calls, answers, strict=True):
        assert_vectors_of(vectors, texts)
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
    assert_vectors_of(await first, ["first"])
    for n, other in enumerate(others):
        assert_vectors_of(await other, [f"text {n}"])
    assert [len(request) for request in server.requests] == [1, 4, 2]


async def test_large_and_empty_calls_go_on_their_own(
    remote: OpenAIEmbedder, server: EmbeddingsServer
) -> None:
    embedder = CoalescingEmbedder(inner=remote, texts_max=4)
    large = [f"text {n}" for n in range(100)]
    answers = await asyncio.gather(embedder.embed(["one"]), embedder.embed(large))
    assert_vectors_of(answers[1], large)
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
    assert_vectors_of(await embedder.embed(["one"]), ["one"])


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
        assert_vectors_of(outcomes[at], [text])
    assert server.requests[1] == ["late 1", "late 2"]


async def test_a_refused_text_fails_only_its_own_caller() -> None:
    async with EmbeddingsServer(refuse="odd") as server:
        remote = embedder_of(server)
        embedder = CoalescingEmbedder(inner=remote)
        calls = (embedder.embed([text]) for text in ("one", "odd", "two"))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(outcomes[1], TextRefused)
        assert_vectors_of(outcomes[0], ["one"])
        assert_vectors_of(outcomes[2], ["two"])
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
    assert_vectors_of(await first, ["first"])
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
    await embedder.close()
    assert not started & set(threading.enumerate())


def test_what_the_model_knows_of_a_text(builtin: BuiltinEmbedder) -> None:
    for text, known in (("", 1.0), ("Where is OPS-4821?", 1.0), ("🙂 tea", 1.0), ("🙂🙂", 0.0)):
        assert builtin.coverage(text).share == pytest.approx(known), text
    endpoint = [Endpoint("http://127.0.0.1:1/v1", None)]
    assert OpenAIEmbedder(endpoints=endpoint, model="m", dim=8).coverage("🙂") == FULL_COVERAGE


@pytest.mark.parametrize(
    "text",
    [
        "我昨天在海边吃了什么？",
        "火星に水はありますか？",
        "화성에 물이 있나요?",
        "Есть ли на Марсе вода?",
        "क्या मंगल ग्रह पर पानी है?",
        "هل يوجد ماء على المريخ؟",
    ],
)
def test_a_language_of_which_the_model_knows_letters_is_not_known(
    builtin: BuiltinEmbedder, text: str
) -> None:
    """Any two texts of it are near to the model, which was given no word of it."""
    assert builtin.coverage(text).share < 0.5


def test_which_words_the_model_only_spells(builtin: BuiltinEmbedder) -> None:
    known = builtin.coverage("Does Zorvath, or ZORVATH's friend 🙂, know what xq means?")
    assert known.spelt == ("Zorvath", "ZORVATH", "xq")
    assert known.share > 0.9, "an acronym is no other language"
    assert builtin.coverage("Where is the old boiler?").spelt == ()
