"""A query that names one of the speakers of a namespace finds first what that speaker said."""

from datetime import UTC, datetime

import pytest

from relayer.embedding.embedders import RELATED
from relayer.query.heading import read_heading, speaker_terms, terms_of_speaker
from relayer.query.rank import ROLE_WEIGHT, SEVERAL_SPEAKER_WEIGHT, SPEAKER_WEIGHT
from relayer.query.speakers import add_speaker
from relayer.query.terms import query_terms
from relayer.record import Memory
from tests.services import TEAM
from tests.twins import Twins, twins

__all__ = ["twins"]  # a fixture

SAID = [
    "[8 May 2023] Carla: I started to paint lighthouses yesterday.",
    "[8 May 2023] Dora: Carla, your lighthouses are lovely, did you paint them all?",
    "[9 May 2023] Dora: I paint, too, but only trees.",
    "[9 May 2023] Carla: Trees are harder to paint than lighthouses.",
    "User: I keep the paint in the shed.",
    "Assistant: Paint keeps longest in a dry shed.",
]


async def _say(twins: Twins) -> None:
    caller = await twins.caller(twins.held)
    items = await twins.held.remember(caller, *SAID)
    items += await twins.held.remember(
        caller, "Frost is no good for paint.", metadata={"speaker": "Emil Nolde"}
    )
    await twins.held.embed(caller, items)


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("What does Carla paint?", "Carla: "),
        ("what does dora paint", "Dora: "),
        ("What did Emil Nolde say about paint?", "Frost"),
        ("Emil's view of paint?", "Frost"),
    ],
)
async def test_what_the_named_one_said_comes_first(twins: Twins, question: str, first: str) -> None:
    await _say(twins)
    [hit, *_] = (await twins.recall(twins.plain, text=question)).found
    assert first in (hit.memory.text or "")
    assert hit.hit.speaker == SPEAKER_WEIGHT
    assert not any("role:" in word for word in hit.hit.matched)


async def test_both_ways_to_search_agree(twins: Twins) -> None:
    await _say(twins)
    await twins.check_alike()
    for text in (
        "What does Carla paint?", "What do Carla and Dora paint?", "Where do I keep the paint?",
        "What did you say about sheds?", "What happened on 7 May 2023?", "Emil Nolde",
        "Where do I keep zzyzx?",
    ):  # fmt: skip
        for more in ({}, {"mode": "keyword"}):
            await twins.check_query(text=text, **more)


async def test_of_several_memories_the_named_one_said_more(twins: Twins) -> None:
    await _say(twins)
    [hit, *_] = (await twins.recall(twins.plain, text="Which trees has Dora painted?")).found
    assert "Dora: I paint" in (hit.memory.text or "")
    assert hit.hit.speaker == SEVERAL_SPEAKER_WEIGHT
    await twins.check_query(text="Which trees has Dora painted?")


async def test_of_two_names_neither_is_lifted(twins: Twins) -> None:
    await _say(twins)
    recalled = await twins.recall(twins.plain, text="What do Carla and Dora paint?")
    assert {found.hit.speaker for found in recalled.found} == {0.0}


async def test_whom_a_query_addresses_is_lifted_a_little(twins: Twins) -> None:
    await _say(twins)
    for text, beginning in (("Where do I keep paint?", "User"), ("Your tip on paint?", "Assist")):
        for found in (await twins.recall(twins.plain, text=text)).found:
            is_meant = (found.memory.text or "").startswith(beginning)
            assert found.hit.speaker == (ROLE_WEIGHT if is_meant else 0.0)


async def test_a_role_alone_finds_nothing(twins: Twins) -> None:
    """That a memory is the user's is no reason to show it."""
    await _say(twins)
    assert not (await twins.recall(twins.plain, text="my zzyzx", mode="keyword")).found


async def test_a_mentioned_day_is_found(twins: Twins) -> None:
    await _say(twins)
    [hit, *_] = (await twins.recall(twins.plain, text="What happened on 7 May 2023?")).found
    assert hit.memory.text == SAID[0]
    assert hit.hit.period > 0
    assert "2023-05-07" in hit.hit.matched
    assert hit.hit.distance <= 1 - RELATED  # so that clients show it


async def test_a_date_at_the_beginning_is_the_moment(twins: Twins) -> None:
    await _say(twins)
    recalled = await twins.recall(twins.plain, text="lighthouses", limit=1)
    assert recalled.found[0].memory.event_time in {
        datetime(2023, 5, day, tzinfo=UTC) for day in (8, 9)
    }


def test_the_name_is_left_out_of_what_is_embedded() -> None:
    terms = query_terms("What are Carla's books, and Dora's?")
    both, text = add_speaker(terms, "What are Carla's books, and Dora's?", {"carla", "dora"})
    assert text == "What are books, and"
    assert not both.speaker
    same, text = add_speaker(terms, "Carla", {"carla"})
    assert text == "Carla"
    assert len(same.speaker) == 1


@pytest.mark.parametrize(
    ("speaker", "count"),
    [("Carla", 2), ("dora", 2), ("Emil Nolde", 1), ("Nolde", 1), ("user", 1), ("Assistant", 1)],
)
async def test_only_what_a_speaker_said(twins: Twins, speaker: str, count: int) -> None:
    await _say(twins)
    await twins.hold(TEAM)
    for bench in (twins.held, twins.plain):
        found = (await twins.recall(bench, text="paint lighthouses", speaker=speaker)).found
        assert len(found) == count
        terms = set(terms_of_speaker(speaker))
        assert all(terms <= set(_terms_of(one.memory)) for one in found)


async def test_nobody_of_that_name_said_anything(twins: Twins) -> None:
    await _say(twins)
    assert not (await twins.recall(twins.plain, text="paint", speaker="Carla Nolde")).found


def _terms_of(memory: Memory) -> list[str]:
    return speaker_terms(read_heading(memory.text or ""), memory.metadata)
