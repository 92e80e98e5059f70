"""The store for LangGraph beside LangGraph's own store: the same calls give the same answers.

`make test-frameworks` runs this file with the real package.
"""

import asyncio
import itertools
import logging
from typing import Any

import pytest
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from memrelay import MemoryClient, SyncMemoryClient
from memrelay.cli import main
from memrelay.errors import ConfigError, NotGranted
from memrelay.langgraph import MemoryStore

NUMBERS = itertools.count()
ANNA, BOB, DOCS = ("users", "anna"), ("users", "bob"), ("docs", "v1", "draft")
CARD = "4111 1111 1111 1111"


class Blocking:
    """The asynchronous methods of a store by its blocking ones, so that one test is for both."""

    def __init__(self, store: BaseStore) -> None:
        self._store = store

    def __getattr__(self, name: str):
        method = getattr(self._store, name.removeprefix("a"))

        async def run(*args, **kwargs):
            return await asyncio.to_thread(method, *args, **kwargs)

        return run


@pytest.fixture(scope="module")
def profile(shared_relayer, tmp_path_factory):
    path = tmp_path_factory.mktemp("langgraph") / "profile.json"
    assert main(["init", shared_relayer.url, "--profile", str(path)], {}) == 0
    return path


@pytest.fixture
async def ours(profile):
    store = MemoryStore.from_profile(profile, namespace=f"graph-{next(NUMBERS)}")
    yield store
    await store.aclose()


@pytest.fixture(params=["blocking", "asynchronous"])
def store(request, ours):
    return Blocking(ours) if request.param == "blocking" else ours


async def fill(store) -> None:
    await store.aput(ANNA, "tea", {"text": "Anna prefers green tea.", "n": 3, "tags": ["a"]})
    await store.aput(ANNA, "cat", {"text": "The cat is called Molly.", "n": 1})
    await store.aput(BOB, "tea", {"text": "Bob drinks coffee.", "n": 5, "who": {"age": 40}})
    await store.aput(DOCS, "tea", {"text": "Anna prefers green tea.", "n": 3, "tags": ["a"]})


def plain(found):
    """What two stores have in common of an answer: not the times, nor the order of a search."""
    if isinstance(found, list):
        return sorted((plain(one) for one in found), key=repr)
    return found and (tuple(found.namespace), found.key, found.value)


async def test_it_answers_as_langgraphs_own_store_does(store):
    theirs = Blocking(InMemoryStore())
    for one in (store, theirs):
        await fill(one)
    for namespace, key in [(ANNA, "tea"), (DOCS, "tea"), (ANNA, "none"), (("users",), "tea")]:
        assert plain(await store.aget(namespace, key)) == plain(await theirs.aget(namespace, key))
    searches: list[dict[str, Any]] = [
        {},
        {"filter": {"n": 3}},
        {"filter": {"n": {"$gt": 1, "$lte": 3}}},
        {"filter": {"n": {"$ne": 3}}},
        {"filter": {"tags": ["a"]}},
        {"filter": {"who": {"age": {"$gte": 40}}}},
        {"filter": {"none": None}},
        {"limit": 100, "offset": 1, "filter": {"n": {"$eq": 5}}},
    ]
    for given in searches:
        for prefix in [(), ("users",), ANNA, ("none",)]:
            found = await store.asearch(prefix, **given)
            assert plain(found) == plain(await theirs.asearch(prefix, **given)), (prefix, given)
            assert all(one.score is None for one in found)
    theirs = Blocking(InMemoryStore())  # theirs lists a namespace that was only asked for
    await fill(theirs)
    listings: list[dict[str, Any]] = [
        {},
        {"prefix": ("users",)},
        {"prefix": ("*", "v1")},
        {"suffix": ("draft",)},
        {"suffix": ("*", "draft")},
        {"max_depth": 1},
        {"max_depth": 2, "limit": 1, "offset": 1},
    ]
    for given in listings:
        assert await store.alist_namespaces(**given) == await theirs.alist_namespaces(**given)


async def test_an_item_is_changed_and_keeps_the_time_it_was_made(store):
    await store.aput(ANNA, "tea", {"text": "green"})
    first = await store.aget(ANNA, "tea")
    await store.aput(ANNA, "tea", {"text": "black"})
    second = await store.aget(ANNA, "tea")
    assert second.value == {"text": "black"}
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at
    await store.adelete(ANNA, "tea")
    await store.adelete(ANNA, "tea")
    assert await store.aget(ANNA, "tea") is None
    await store.aput(ANNA, "tea", {"text": "black"})
    assert (await store.aget(ANNA, "tea")).value == {"text": "black"}


async def test_a_search_is_by_meaning_and_its_score_is_a_relevance(store):
    await fill(store)
    found = await store.asearch(("users",), query="What does Bob drink?", limit=2)
    assert (found[0].namespace, found[0].key) == (BOB, "tea")
    assert 0.5 < found[0].score <= 1
    assert all(0 <= one.score <= found[0].score for one in found)
    assert {one.namespace[0] for one in found} == {"users"}
    [one] = await store.asearch(("users",), query="drink", filter={"n": 1})
    assert one.key == "cat"


async def test_what_could_be_searched_by_words_only_has_no_score(ours, monkeypatch):
    """As while the endpoint for embeddings is away."""
    ours.put(ANNA, "tea", {"text": "Anna prefers green tea."})
    recall = SyncMemoryClient.recall

    def degraded(self, *args, **kwargs):
        import dataclasses

        return dataclasses.replace(recall(self, *args, **kwargs), degraded=True)

    monkeypatch.setattr(SyncMemoryClient, "recall", degraded)
    [one] = ours.search(ANNA, query="green tea")
    assert one.score is None


async def test_only_chosen_fields_are_searched(ours):
    ours.put(ANNA, "a", {"title": "Zebras", "body": "of the savanna"}, index=["title"])
    ours.put(ANNA, "b", {"title": "Kettles"}, index=False)
    [memory] = ours._client.list(namespace=ours._namespace, limit=1).memories
    assert memory.text == "users.anna/b"
    assert ours.get(ANNA, "b").value == {"title": "Kettles"}
    texts = [m.text for m in ours._client.list(namespace=ours._namespace).memories]
    assert texts[1] == "users.anna/a\nZebras"


async def test_values_come_back_exactly(ours, caplog):
    values = [
        {"text": f"My card is {CARD}."},
        {"blanks": "  a \n\n b\t", "empty": {}, "none": None, "float": 0.1, "big": 2**60},
        {"emoji": "🦞", "quote": "\"\\'", "list": [[], [1, [2]]]},
        {"long": "word " * 8_000},
    ]
    with caplog.at_level(logging.WARNING, "memrelay.langgraph"):
        for number, value in enumerate(values):
            ours.put(("odd",), f"key {number}", value)
    for number, value in enumerate(values):
        assert ours.get(("odd",), f"key {number}").value == value
    assert "Secrets were taken out" in caplog.text
    assert CARD not in caplog.text


async def test_keys_that_are_almost_alike_are_different_items(ours):
    keys = ["a b", "a  b", "a b ", "A b", "a/b", "a\nb", "ä", "a\u0308", "k" * 500]
    for key in keys:
        ours.put(("odd",), key, {"is": key})
    assert [ours.get(("odd",), key).value["is"] for key in keys] == keys
    assert len(ours.search(("odd",), limit=50)) == len(keys)


async def test_a_batch_reads_first_and_the_last_put_of_a_key_counts(ours):
    ours.put(ANNA, "a", {"n": 0})
    results = ours.batch(
        [
            PutOp(ANNA, "a", {"n": 1}),
            GetOp(ANNA, "a"),
            PutOp(ANNA, "a", {"n": 2}),
            PutOp(BOB, "b", {"n": 3}),
            ListNamespacesOp(),
            SearchOp(("users",)),
        ]
    )
    assert results[0] is None
    assert results[1].value == {"n": 0}
    assert results[4] == [ANNA]
    assert len(results[5]) == 1
    assert ours.get(ANNA, "a").value == {"n": 2}
    assert ours.get(BOB, "b").value == {"n": 3}


async def test_of_two_writers_at_once_one_wins_and_nothing_is_left_over(ours, profile):
    others = [MemoryStore.from_profile(profile, namespace=ours._namespace) for _ in range(3)]
    await asyncio.gather(
        *(store.aput(ANNA, "a", {"by": number}) for number, store in enumerate(others))
    )
    assert (await ours.aget(ANNA, "a")).value["by"] in {0, 1, 2}
    await ours.aput(ANNA, "a", {"by": "us"})
    assert (await ours.aget(ANNA, "a")).value == {"by": "us"}
    assert len(ours._client.list(namespace=ours._namespace).memories) == 1
    for store in others:
        await store.aclose()


async def test_another_key_of_the_account_reads_nothing_without_a_grant(ours, profile, tmp_path):
    """The items are sealed as every memory is."""
    ours.put(ANNA, "a", {"secret": "heron"})
    agent = tmp_path / "other.json"
    adding = ["keys", "add", "--namespace", "elsewhere", "--out", str(agent)]
    assert main([*adding, "--profile", str(profile)], {}) == 0
    other = MemoryStore.from_profile(agent, namespace=ours._namespace)
    with pytest.raises(NotGranted):
        other.get(ANNA, "a")
    await other.aclose()


async def test_what_it_cannot_do_is_said(ours, profile):
    with pytest.raises(InvalidNamespaceError):
        ours.put((), "a", {})
    with pytest.raises(InvalidNamespaceError):
        ours.batch([GetOp(("a.b",), "c")])
    with pytest.raises(NotImplementedError):
        ours.put(ANNA, "a", {}, ttl=5)
    with pytest.raises(ValueError, match=r"no operator \$like"):
        ours.put(ANNA, "a", {"n": 1}) or ours.search(ANNA, filter={"n": {"$like": 1}})
    with pytest.raises(ValueError, match="leave `index` out"):
        ours.put(ANNA, "long", {"t": "x" * 9_000}, index=["t"])
    with pytest.raises(ValueError, match="at most 28 parts"):
        ours.put(tuple("abcdefghijklmnopqrstuvwxyzabcd"), "a", {})
    with pytest.raises(ConfigError, match="no asynchronous client"):
        await MemoryStore(SyncMemoryClient.from_profile(profile)).aget(ANNA, "a")
    with pytest.raises(ConfigError, match="no blocking client"):
        MemoryStore(None, MemoryClient.from_profile(profile)).get(ANNA, "a")


async def test_a_graph_remembers_across_threads(ours):
    """A graph of LangGraph with this store, as its pages show it."""
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.runtime import Runtime

    def learn(state: MessagesState, runtime: Runtime):
        said = state["messages"][-1].content
        runtime.store.put(ANNA, str(len(said)), {"text": said})
        return {}

    async def answer(state: MessagesState, runtime: Runtime):
        found = await runtime.store.asearch(ANNA, query="drink", limit=1)
        return {"messages": [("assistant", found[0].value["text"])]}

    graph = StateGraph(MessagesState).add_node(learn).add_node(answer)
    graph.add_edge(START, "learn").add_edge("learn", "answer").add_edge("answer", END)
    compiled = graph.compile(store=ours)
    said = {"messages": [("user", "Anna drinks green tea.")]}
    state = await compiled.ainvoke(said)
    assert state["messages"][-1].content == "Anna drinks green tea."
