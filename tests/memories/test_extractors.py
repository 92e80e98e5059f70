"""Who found the facts of a turn is said, stored and counted; so is why the model did not.

Not here: the routes that tell it (`tests/routes/test_extraction_answers.py`).
"""

import logging
import uuid
from collections.abc import Sequence
from datetime import timedelta

import pytest

from relayer.database import accounts as account_rows
from relayer.database.episodes import LATELY, Failures
from relayer.errors import Corrupted, NotAuthenticated, Unavailable
from relayer.memories.conversations import RULES_AFTER, Analyzed, cause_of
from relayer.memories.opener import Caller
from tests.openai_server import OpenAIServer, Step
from tests.services import OTHER, TEAM, Bench
from tests.talking import AWAY, TALK, analyze, choose, facts
from tests.telemetry.reading import counted, grown
from tests.thinking import model, server, thinking

__all__ = ["model", "server", "thinking"]  # fixtures

USELESS = Step(content="nothing but chatter")
TURNS = "memrelay_turns_total"


async def extract(bench: Bench, caller: Caller, turn: uuid.UUID) -> None:
    await bench.services.analysis.extract_episode(caller.access.account, caller.keys, turn)


async def waiting(bench: Bench, caller: Caller, server: OpenAIServer, text: str = TALK) -> Analyzed:
    """A turn whose facts the model was away for."""
    server.script(AWAY)
    kept = await analyze(bench, caller, text)
    assert kept.pending is not None
    return kept


async def exhausted(bench: Bench, caller: Caller, server: OpenAIServer, turn: uuid.UUID) -> str:
    """Have the model answer nothing of use, so that the rules take over; why it failed."""
    server.script(*[USELESS] * 50)  # however often it is asked in one attempt
    await extract(bench, caller, turn)
    server.clear()
    return "unusable answer"


async def extractor_of(bench: Bench, caller: Caller, turn: uuid.UUID) -> str | None:
    """What whoever polls is told."""
    states = await bench.services.memory.states(caller.access, [turn])
    found: str | None = states[turn]["extractor"]
    return found


async def counts(bench: Bench, caller: Caller) -> tuple[int, int]:
    """How many turns of the account gave facts, and how many none."""
    row = await account_rows.find_account(bench.storage.database, caller.access.account)
    assert row is not None
    return row["turns_with_facts"], row["turns_without_facts"]


async def failures(bench: Bench, caller: Caller) -> Failures:
    return await bench.services.episodes.failures(caller.access)


class TestTold:
    """The answer names who found the facts."""

    async def test_rules_where_there_is_no_model(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        for text in (TALK, "ok, thanks, bye"):
            assert (await analyze(bench, caller, text)).extractor == "rules"
        assert bench.services.analysis.extractor == "rules"

    async def test_the_model(self, thinking: Bench, server: OpenAIServer) -> None:
        caller = await thinking.caller(await thinking.account())
        server.script(facts("Anna prefers window seats."), facts())
        for text in (TALK, "1. user: Nothing to see here."):
            analyzed = await analyze(thinking, caller, text)
            assert (analyzed.extractor, analyzed.failure) == ("model", None)
        assert thinking.services.analysis.extractor == "model"

    async def test_nobody_yet_while_the_turn_waits_and_why(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await thinking.caller(await thinking.account())
        kept = await waiting(thinking, caller, server)
        assert kept.extractor is None
        assert kept.failure
        assert kept.pending is not None
        turn = await thinking.services.episodes.get(caller, kept.pending)
        assert (turn.extractor, turn.failure) == (None, kept.failure)
        assert await extractor_of(thinking, caller, kept.pending) is None
        server.script(facts("Anna prefers window seats."))
        await extract(thinking, caller, kept.pending)
        assert await extractor_of(thinking, caller, kept.pending) == "model"

    async def test_rules_after_the_model_failed_and_why(
        self, thinking: Bench, server: OpenAIServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Whoever polls, reads the log or the metrics is told; by fixed words alone."""
        caller = await thinking.caller(await thinking.account())
        kept = await waiting(thinking, caller, server)
        assert kept.pending is not None
        before = counted()
        with caplog.at_level(logging.WARNING, logger="relayer.memories.analysis"):
            cause = await exhausted(thinking, caller, server, kept.pending)
        told = await extractor_of(thinking, caller, kept.pending)
        assert told == RULES_AFTER + cause == f"rules after the model failed: {cause}"
        [line] = [r for r in caplog.records if r.name == "relayer.memories.analysis"]
        assert (line.__dict__["event"], line.__dict__["cause"]) == ("analysis.rules", cause)
        assert "chatter" not in told + line.getMessage()
        after = {"outcome": "facts", "extractor": "rules_after_failure"}
        assert grown(before, TURNS, **after) == 1
        assert grown(before, TURNS) == 1

    async def test_rules_alone_once_the_model_is_taken_away(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await thinking.caller(await thinking.account())
        kept = await waiting(thinking, caller, server)
        assert kept.pending is not None
        await extract(thinking.another(), caller, kept.pending)
        assert await extractor_of(thinking, caller, kept.pending) == "rules"

    async def test_of_a_kept_turn_who_found_its_facts_last(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await choose(
            thinking, await thinking.caller(await thinking.account()), keep_turns=True
        )
        kept = await waiting(thinking, caller, server)
        assert kept.pending is not None
        cause = await exhausted(thinking, caller, server, kept.pending)
        turn = await thinking.services.episodes.get(caller, kept.pending)
        assert (turn.state, turn.extractor) == ("kept", RULES_AFTER + cause)
        server.script(facts("Anna prefers window seats."))
        again = await thinking.services.analysis.again(caller, kept.pending)
        assert again.extractor == "model"
        [listed] = await thinking.services.episodes.newest(caller, [TEAM], limit=5)
        assert (listed.extractor, listed.failure) == ("model", cause)

    async def test_of_a_turn_that_is_kept_at_once(self, bench: Bench) -> None:
        caller = await choose(bench, await bench.caller(await bench.account()), keep_turns=True)
        analyzed = await analyze(bench, caller, TALK)
        assert analyzed.kept is not None
        assert (await bench.services.episodes.get(caller, analyzed.kept)).extractor == "rules"

    async def test_a_repeated_request_tells_what_became_of_a_turn(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await thinking.caller(await thinking.account())
        server.script(AWAY)
        first = await analyze(thinking, caller, TALK, idempotency_key="k")
        assert first.pending is not None
        again = await analyze(thinking, caller, TALK, idempotency_key="k")
        assert (again.pending, again.extractor, again.failure) == (
            first.pending,
            None,
            first.failure,
        )
        cause = await exhausted(thinking, caller, server, first.pending)
        again = await analyze(thinking, caller, TALK, idempotency_key="k")
        assert (again.pending, again.extractor, again.failure) == (
            first.pending,
            RULES_AFTER + cause,
            None,
        )

    async def test_a_repeated_request_does_not_guess(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        for text in (TALK, "ok, thanks, bye"):
            first = await analyze(bench, caller, text, idempotency_key=text)
            again = await analyze(bench, caller, text, idempotency_key=text)
            assert (first.extractor, again.extractor) == ("rules", None)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (TimeoutError("what it says"), "deadline"),
        (Unavailable("what it says"), "unavailable"),
        (Corrupted("what it says"), "unavailable"),
    ],
)
def test_a_cause_is_a_fixed_word(error: TimeoutError | Unavailable, cause: str) -> None:
    assert cause_of(error) == cause


def test_a_cause_is_the_error_s_own_if_it_has_one() -> None:
    error = Unavailable("what it says")
    error.cause = "refusal"
    assert cause_of(error) == "refusal"


class TestCounted:
    """Turns by what they gave, each once."""

    async def test_new_facts_known_ones_and_nothing(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        for text, outcome, expected in (
            (TALK, "facts", (1, 0)),
            (TALK, "known", (2, 0)),
            ("ok, thanks, bye", "nothing", (2, 1)),
        ):
            before = counted()
            await analyze(bench, caller, text)
            assert grown(before, TURNS, outcome=outcome, extractor="rules") == 1
            assert grown(before, TURNS) == 1
            assert await counts(bench, caller) == expected

    async def test_a_turn_that_waits_when_its_facts_are_found(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await thinking.caller(await thinking.account())
        before = counted()
        kept = await waiting(thinking, caller, server)
        await waiting(thinking, caller, server)  # said again, it is the same one
        assert kept.pending is not None
        assert grown(before, TURNS, outcome="pending") == 1
        assert await counts(thinking, caller) == (0, 0)
        server.script(facts())
        await extract(thinking, caller, kept.pending)
        assert grown(before, TURNS, outcome="nothing", extractor="model") == 1
        assert await counts(thinking, caller) == (0, 1)

    async def test_not_what_is_asked_for_again(self, bench: Bench) -> None:
        caller = await choose(bench, await bench.caller(await bench.account()), keep_turns=True)
        first = await analyze(bench, caller, TALK, idempotency_key="k")
        await analyze(bench, caller, TALK, idempotency_key="k")
        assert first.kept is not None
        await bench.services.analysis.again(caller, first.kept)
        assert await counts(bench, caller) == (1, 0)

    async def test_not_for_a_key_that_was_revoked_meanwhile(self, bench: Bench) -> None:
        """It changes nothing of the account any more, not even a number."""
        founder = await bench.account()
        agent = await bench.key(founder, TEAM)
        caller = await bench.caller(agent)
        await bench.revoke(founder, agent.identity.public_key)
        with pytest.raises(NotAuthenticated):
            await analyze(bench, caller, "ok, thanks, bye")
        assert await counts(bench, caller) == (0, 0)

    async def test_what_one_account_says_is_not_counted_for_another(self, bench: Bench) -> None:
        one, other = [await bench.caller(await bench.account()) for _ in range(2)]
        await analyze(bench, one, TALK)
        assert (await counts(bench, one), await counts(bench, other)) == ((1, 0), (0, 0))


class TestFailures:
    """How often the model failed of late, of an account's turns."""

    async def test_what_waits_and_what_failed(self, thinking: Bench, server: OpenAIServer) -> None:
        caller = await thinking.caller(await thinking.account())
        assert await failures(thinking, caller) == Failures()
        kept = await waiting(thinking, caller, server)
        assert await failures(thinking, caller) == Failures(1, 1, kept.failure)
        assert kept.pending is not None
        cause = await exhausted(thinking, caller, server, kept.pending)
        assert await failures(thinking, caller) == Failures(0, 1, cause)

    async def test_of_the_last_day_and_what_waits_however_long(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await thinking.caller(await thinking.account())
        done = await waiting(thinking, caller, server)
        await waiting(thinking, caller, server, "1. We decided to keep the old boat.")
        assert done.pending is not None
        server.script(facts("Anna prefers window seats."))
        await extract(thinking, caller, done.pending)
        for statement, failed in (
            (LATELY - timedelta(minutes=1), 2),
            (LATELY + timedelta(minutes=1), 1),
        ):
            moment = thinking.clock() - statement
            await thinking.sql("UPDATE episodes SET created_at = $1", moment)
            assert (await failures(thinking, caller)).failed == failed

    async def test_the_newest_failure_s_cause(self, thinking: Bench, server: OpenAIServer) -> None:
        caller = await thinking.caller(await thinking.account())
        turns: Sequence[uuid.UUID | None] = [
            (await waiting(thinking, caller, server, f"1. We decided on boat {n}.")).pending
            for n in range(3)
        ]
        for minutes, turn in enumerate(turns):
            await thinking.sql(
                "UPDATE episodes SET failure = $2, created_at = $3 WHERE episode_id = $1",
                turn,
                f"cause {minutes}",
                thinking.clock() - timedelta(minutes=minutes),
            )
        assert await failures(thinking, caller) == Failures(3, 3, "cause 0")

    async def test_of_the_namespaces_that_a_key_may_read(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        founder = await thinking.account()
        owner = await thinking.caller(founder)
        agent = await thinking.caller(await thinking.key(founder, OTHER))
        await waiting(thinking, owner, server)
        assert (await failures(thinking, owner)).waiting == 1
        assert await failures(thinking, agent) == Failures()
        server.script(AWAY)
        await analyze(thinking, agent, TALK, namespace=OTHER)
        assert (await failures(thinking, agent)).waiting == 1
        assert (await failures(thinking, owner)).waiting == 2

    async def test_a_turn_that_waited_before_this_release_has_no_failure(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await thinking.caller(await thinking.account())
        await waiting(thinking, caller, server)
        await thinking.sql("UPDATE episodes SET failure = NULL")
        assert await failures(thinking, caller) == Failures(1, 0, None)
