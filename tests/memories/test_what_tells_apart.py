"""What differs little and is not the same: a sign in an address, a capital, the end of a name."""

import pytest

from relayer.extraction.facts import say_the_same
from tests.consolidating import caller_of, consolidated
from tests.editing import writer
from tests.openai_server import OpenAIServer
from tests.services import Bench
from tests.talking import analyze, facts
from tests.thinking import model, server, thinking

__all__ = ["model", "server", "thinking"]  # fixtures

POINT, HYPHEN = "Bea's address is bea.lee@example.com.", "Bea's address is bea-lee@example.com."


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (POINT, HYPHEN),
        ("The config is in /etc/app.d/conf.", "The config is in /etc/app/d/conf."),
        ("The branch is release/v2.", "The branch is release-v2."),
        ("The host is db-1.internal.", "The host is db.1.internal."),
        ("The way is `rm -r` here.", "The way is `rm -R` here."),
        ("Images are built with --no-cache.", "Images are built with no cache."),
        ("The script reads $SHELL.", "The script reads SHELL."),
        ("The fee is 5 %.", "The fee is 5."),
        ("The file is .env.", "The file is env."),
        ("It answers [].", "It answers {}."),
        ("The job deletes *.txt.", "The job deletes .txt."),
        ("The class is fooBar.", "The class is foobar."),
        ("The size is 5 M.", "The size is 5 m."),
        ("The load is 5MW.", "The load is 5mw."),
        ("Anna's landlord is Peter.", "Anna's landlord is Peters."),
        ("Anna's landlord is Mr. William.", "Anna's landlord is Mr. Williams."),
        ("Bea signs in as peter.", "Bea signs in as peters."),
        ("Die Maße zählen.", "Die Masse zählen."),
        ("Plants die in winter.", "Plants in winter."),
        ("Der Zug kommt an.", "Der Zug kommt."),
        ("Der Lehrer hilft dem Schüler.", "Dem Lehrer hilft der Schüler."),
    ],
)
async def test_a_correction_is_no_repetition(
    thinking: Bench, server: OpenAIServer, one: str, other: str
) -> None:
    assert not say_the_same(one, other)
    caller = await writer(thinking)
    [old] = await thinking.remember(caller, one)
    thinking.clock.advance(60)
    server.script(facts(other, contradicts=1))
    [fact] = (await analyze(thinking, caller, f"1. user: No: {other}")).facts
    assert list(fact.superseded) == [old.id]
    assert await thinking.texts(caller, other) == [other]


async def test_what_the_model_takes_for_a_contradiction_is_one(
    thinking: Bench, server: OpenAIServer
) -> None:
    """Only what says the same to the letter cannot be: the model sees more than fillers."""
    caller = await writer(thinking)
    [old] = await thinking.remember(caller, "Bea really rotates the logs.")
    thinking.clock.advance(60)
    server.script(facts("Bea rotates the logs.", contradicts=1))
    [fact] = (await analyze(thinking, caller, "1. user: Not really, Bea rotates the logs.")).facts
    assert list(fact.superseded) == [old.id]


async def test_names_that_differ_in_their_end_are_not_merged(bench: Bench) -> None:
    caller = await caller_of(bench, "managed")
    said = "Anna's landlord is Mr. William.", "Anna's landlord is Mr. Williams.", POINT, HYPHEN
    await bench.remember(caller, *said)
    _, done = await consolidated(bench, caller)
    assert done == []
