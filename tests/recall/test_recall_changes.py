"""Memories that are changed while they are recalled."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from relayer.database import recall as search
from relayer.memories.opener import Caller
from relayer.memories.revisions import Edit
from tests.services import Bench

Meddler = Callable[[Bench, Caller, Any], Awaitable[Any]]


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Awaitable[Any]]], None]:
    """Has something done once a search has found, and before what it found is opened."""

    def after_next_search(change: Callable[[], Awaitable[Any]]) -> None:
        gather, changes = search.gather, [change]

        async def gathered(*arguments: Any, **named: Any) -> search.Evidence:
            evidence = await gather(*arguments, **named)
            while changes:
                await changes.pop()()
            return evidence

        monkeypatch.setattr(search, "gather", gathered)

    return after_next_search


def edited(**changes: Any) -> Meddler:
    return lambda bench, caller, memory_id: bench.services.reviser.edit(
        caller, memory_id, Edit(changes=changes)
    )


def stated(**changes: Any) -> Meddler:
    wanted: Any = changes  # any members of a `Change`
    return lambda bench, caller, memory_id: bench.services.state_changer.set_state(
        caller.access, memory_id, wanted
    )


@pytest.mark.parametrize(
    ("change", "query"),
    [
        (edited(kind="event"), {"kinds": ["fact"]}),
        (edited(tags=[]), {"tags": ["house"]}),
        (edited(source="mail"), {"source": "chat"}),
        (edited(metadata={"room": "attic"}), {"metadata": {"room": "cellar"}}),
        (stated(review="rejected"), {}),
    ],
    ids=["kind", "tags", "source", "metadata", "rejected"],
)
async def test_what_no_longer_is_what_was_asked_for_is_not_found(
    bench: Bench,
    between: Callable[[Callable[[], Awaitable[Any]]], None],
    change: Meddler,
    query: dict[str, Any],
) -> None:
    caller = await bench.caller(await bench.account())
    said: dict[str, Any] = {
        "tags": ("house",), "kind": "fact", "source": "chat", "metadata": {"room": "cellar"}
    }  # fmt: skip
    [first] = await bench.remember(caller, "Anna prefers tea.", **said)
    await bench.remember(caller, "Anna has a red door.", **said)
    between(lambda: change(bench, caller, first.id))
    assert await bench.texts(caller, "Anna", **query) == ["Anna has a red door."]


async def test_an_edited_memory_is_found_by_what_it_says_now(
    bench: Bench, between: Callable[[Callable[[], Awaitable[Any]]], None]
) -> None:
    caller = await bench.caller(await bench.account())
    [first] = await bench.remember(caller, "Anna prefers tea.", kind="fact")
    between(lambda: edited(text="Anna prefers coffee.")(bench, caller, first.id))
    assert await bench.texts(caller, "Anna", kinds=["fact"]) == ["Anna prefers coffee."]
