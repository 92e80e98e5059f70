"""Who runs a relayer hears that its embedding model does not know the language of the questions.

Not here: what such questions find (`test_recall_languages.py`).
"""

import logging
from typing import Any

import pytest

from relayer.memories.opener import Caller
from relayer.memories.revisions import Edit
from relayer.query import understanding
from relayer.query.query import Query
from tests.services import TEAM, Bench
from tests.telemetry.reading import counted, grown

QUERIES = "memrelay_recall_queries_total"
CHINESE, ENGLISH = "安娜喜欢喝什么茶？", "Which tea does Anna like?"


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten queries are enough."""
    monkeypatch.setattr(understanding, "LOOKED_AT", 10)


async def ask(bench: Bench, caller: Caller, text: str, times: int, mode: str = "hybrid") -> None:
    for _ in range(times):
        query = Query(text=text, namespaces=[TEAM], mode=mode)
        await bench.services.recaller.recall(caller, query)


def said(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    found = [vars(r) for r in caplog.records if getattr(r, "event", "") == "recall.foreign"]
    assert all(line["levelno"] == logging.WARNING for line in found)
    return found


async def test_most_queries_in_another_language_are_said_once_and_counted(
    hybrid: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caller, before = await hybrid.caller(await hybrid.account()), counted()
    await ask(hybrid, caller, ENGLISH, 4)
    await ask(hybrid, caller, CHINESE, 6)
    [line] = said(caplog)
    assert (line["queries"], line["of"]) == (6, 10)
    assert "茶" not in caplog.text
    assert grown(before, QUERIES, understood="yes") == 4
    assert grown(before, QUERIES, understood="no") == 6
    await ask(hybrid, caller, CHINESE, 10)
    assert len(said(caplog)) == 1


async def test_half_of_them_are_not_most(hybrid: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caller = await hybrid.caller(await hybrid.account())
    for _ in range(2):
        await ask(hybrid, caller, ENGLISH, 5)
        await ask(hybrid, caller, CHINESE, 5)
    assert not said(caplog)


async def test_queries_that_meaning_is_not_asked_of_say_nothing(
    hybrid: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caller, before = await hybrid.caller(await hybrid.account()), counted()
    for mode in ("keyword", "vector"):
        await ask(hybrid, caller, CHINESE, 10, mode)
    assert not said(caplog)
    assert not grown(before, QUERIES)


async def test_without_a_model_there_is_none_that_could_know(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    before = counted()
    await ask(bench, await bench.caller(await bench.account()), CHINESE, 10)
    assert not said(caplog)
    assert not grown(before, QUERIES)


async def test_one_of_which_words_come_first_is_not_counted_either(
    hybrid: Bench,
) -> None:
    caller = await hybrid.caller(await hybrid.account())
    texts = ("Anna's favourite drink is Earl Grey.", "A woman called.", "We enjoy it.", "It rains.")
    await hybrid.embed(caller, await hybrid.remember(caller, *texts))
    before = counted()
    text = "Which beverage does the woman enjoy?"
    query = Query(text=text, namespaces=[TEAM], mode="keyword_first", min_relevance=0.3)
    await hybrid.services.recaller.recall(caller, query)
    assert not grown(before, QUERIES)


async def test_a_question_that_is_searched_again_is_one(
    hybrid: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory loses what is asked for between the search and the opening."""
    caller = await hybrid.caller(await hybrid.account())
    [stored] = await hybrid.remember(caller, "Anna likes green tea.", tags=["tea"])
    recaller, before, changed = hybrid.services.recaller, counted(), list[Edit]()
    opened = recaller._open_best

    async def late(*arguments: Any) -> Any:
        if not changed:
            changed.append(Edit(changes={"tags": []}))
            await hybrid.services.reviser.edit(caller, stored.id, *changed)
        return await opened(*arguments)

    monkeypatch.setattr(recaller, "_open_best", late)
    recalled = await recaller.recall(caller, Query(text=ENGLISH, namespaces=[TEAM], tags=["tea"]))
    assert changed
    assert not recalled.found
    assert grown(before, QUERIES) == 1
