"""A fact with a name, a number or a date that nobody said is stored, and waits for review."""

from datetime import UTC, datetime

import pytest

from relayer.extraction.empty_texts import says_nothing
from relayer.extraction.facts import Excerpt
from relayer.extraction.model import LlmExtractor
from relayer.extraction.support import Evidence
from relayer.extraction.times import collect_years
from tests.extraction import claims
from tests.extraction.scripted import (
    TOKEN,
    analyze,
    answer,
    bench,
    fact,
    memories,
    server,
    shown,
    silent,
)
from tests.openai_server import OpenAIServer
from tests.services import Bench
from tests.talking import choose, waiting

__all__ = ["bench", "server", "silent"]  # fixtures

SAID = "1. user: Mira says her ferry leaves from pier 7."
FERRY = "Mira's ferry leaves from pier 7."
INVENTED = "Mira's ferry leaves from pier 9 in Dover."
CARD = "4111 1111 1111 1111"


def supports(said: str, text: str, when: datetime | None = claims.SATURDAY) -> bool:
    return Evidence([said], when, collect_years([said], when)).supports(text)


@pytest.mark.parametrize(("said", "text"), claims.SUPPORTED)
def test_what_was_said_in_other_words_is_borne_out(said: str, text: str) -> None:
    assert supports(said, text)
    assert not says_nothing(text)


# It names three drugs where an allergy was spoken of: words that are no names show nothing.
UNSEEN = [("Remember my allergy", claims.INVENTED[-3][1])]


@pytest.mark.parametrize(("said", "text"), [pair for pair in claims.INVENTED if pair not in UNSEEN])
def test_what_nobody_said_is_not(said: str, text: str) -> None:
    assert not supports(said, text)


def test_of_others_few_are_told_wrongly() -> None:
    """At most a twentieth of what is borne out is doubted, and a tenth of inventions is not."""
    doubted = [pair for pair in claims.HELD_OUT_SUPPORTED if not supports(*pair)]
    believed = [pair for pair in claims.HELD_OUT_INVENTED if supports(*pair)]
    assert len(doubted) <= 0.05 * len(claims.HELD_OUT_SUPPORTED), doubted
    assert len(believed) <= 0.1 * len(claims.HELD_OUT_INVENTED), believed


@pytest.mark.parametrize(
    ("said", "text", "believed"),
    [
        ("I fly tomorrow.", "The user flies on 29 November 2026.", True),
        ("I fly tomorrow.", "The user flies on 5 December 2026.", False),
        ("I fly next Friday.", "The user flies on 4 December 2026.", True),
        ("I fly next Friday.", "The user flies on 4 January 2027.", False),
        ("I fly in five weeks.", "The user flies on 2 January 2027.", True),
        ("I fly next year.", "The user flies on 2 May 2027.", True),
        ("I fly soon.", "The user flies on 29 November 2026.", False),
        ("Ich fliege übermorgen.", "Der Nutzer fliegt am 30. November 2026.", True),
        ("我明天飞。", "用户2026-11-29飞。", True),
        ("我明天飞。", "用户11月29日飞。", True),
        ("내일 떠나요.", "사용자는 2026년 12월 24일에 떠난다.", False),
    ],
)
def test_days_are_counted_from_the_one_it_was_said_on(said: str, text: str, believed: bool) -> None:
    assert supports(said, text) == believed
    assert not supports(said, text, None)


def test_known_memories_bear_a_fact_out() -> None:
    known = "The user's sister Clara lives in Graz."
    texts = ["user: my sister moved to Linz", known]
    when = datetime(2026, 3, 1, tzinfo=UTC)
    evidence = Evidence(texts, when, set())
    assert evidence.supports("Clara, the user's sister, moved from Graz to Linz.")
    assert not evidence.supports("Clara, the user's sister, moved from Graz to Wels.")


async def test_an_invented_fact_waits_for_review_whatever_the_account_wants(
    bench: Bench, server: OpenAIServer
) -> None:
    """capability 3.17: facts that nothing bears out wait to be approved or rejected."""
    for wish in ("keep", "review"):
        caller = await bench.caller(await bench.account())
        caller = await choose(bench, caller, low_confidence=wish)
        server.script(answer(fact(FERRY), fact(INVENTED, importance="vital")))
        await analyze(bench, caller, SAID)
        assert [m.text for m in await memories(bench, caller)] == [FERRY]
        [held] = await waiting(bench, caller)
        assert (held.memory.text, held.memory.confidence) == (INVENTED, "low")


async def test_an_invented_fact_supersedes_nothing(bench: Bench, server: OpenAIServer) -> None:
    caller = await bench.caller(await bench.account())
    caller = await choose(bench, caller, contradictions="newer_wins")
    await bench.remember(caller, FERRY)
    server.script(answer(fact(INVENTED, contradicts=1)))
    await analyze(bench, caller, "1. user: Mira's ferry leaves from somewhere else now.")
    assert [m.text for m in await memories(bench, caller)] == [FERRY]


async def test_secrets_of_an_answer_are_redacted_where_it_waits(
    bench: Bench, server: OpenAIServer
) -> None:
    """Nobody said them: the model was shown none."""
    caller = await bench.caller(await bench.account())
    server.script(
        answer(fact(f"The user pays with card {CARD}."), fact(f"The token is {TOKEN} for now."))
    )
    await analyze(bench, caller, "1. user: I pay with my card.")
    assert {one.memory.text for one in await waiting(bench, caller)} == {
        "The user pays with card [redacted:card-number].",
        "The token is [redacted:github-token] for now.",
    }
    assert all(CARD not in prompt for prompt in shown(server))


@pytest.mark.parametrize(
    "text",
    [
        "The assistant",
        "The staging server",
        "A dog named Bello",
        "Der Nutzer",
        "Please remember that.",
        "Keep that in mind.",
        "Noted.",
        "What does Anna drink?",
        "The user said:",
        "the the the the",
        "The user likes tea likes tea likes tea likes tea",
        "The user prefers tea. The user prefers tea. The user prefers tea.",
        "用户喜欢茶用户喜欢茶用户喜欢茶用户喜欢茶",
        "string",
        "One fact in one sentence.",
        "<text>",
        "...",
    ],
)
def test_what_states_nothing_is_no_fact(text: str) -> None:
    assert says_nothing(text)


@pytest.mark.parametrize(
    "text",
    [
        "Ada is vegan.",
        "Likes sushi.",
        "Port: 8443",
        "Staging is down.",
        "The office moved.",
        "A dog bit Anna.",
        "No meetings before 10.",
        "Bora Bora is nice.",
        "Her number is 555 555 555.",
        "The sky is very very blue.",
        "Mag keinen Kaffee.",
        "Das Team wechselte von Jira zu Linear.",
        "O usuário mora em Lisboa.",
        "Коля любит Машу.",
        "用户喜欢茶。",
    ],
)
def test_short_statements_are_facts(text: str) -> None:
    assert not says_nothing(text)


async def test_a_text_that_a_grammar_cut_is_no_fact(bench: Bench, server: OpenAIServer) -> None:
    caller = await bench.caller(await bench.account())
    cut = ("The user says that Mira's ferry leaves from pier 7, and that " * 9)[:400]
    server.script(answer(fact(cut), fact(FERRY)))
    await analyze(bench, caller, SAID)
    assert [m.text for m in await memories(bench, caller)] == [FERRY]


@pytest.mark.parametrize(
    ("said", "text", "confidence"),
    [
        ("1. user: My ferry leaves from pier 7.", "The ferry leaves from pier 7.", "medium"),
        (
            "1. user: Where does it leave?\n\n2. assistant: The ferry leaves from pier 7.",
            "The ferry leaves from pier 7.",
            "medium",
        ),
    ],
)
async def test_who_said_it_is_found_out_where_the_model_does_not_say(
    server: OpenAIServer, bench: Bench, said: str, text: str, confidence: str
) -> None:
    model = bench.services.answerer._model
    assert model is not None
    server.script(answer({"text": text, "importance": "vital"}))
    [found] = await LlmExtractor(model=model).extract(Excerpt(said))
    by_user = "assistant" not in said
    assert found.importance == ("vital" if by_user else "standard")
    assert found.confidence == confidence
