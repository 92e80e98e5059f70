"""Runs that do not count: what was said in them is not captured with a later turn, either."""

from dataclasses import replace

import pytest

from memrelay import Settings
from memrelay.gateway import Gateway, Roster
from memrelay.gateway.host_events import ASSISTANT, USER, Context, Message
from memrelay.gateway.settings import PROFILES
from memrelay.gateway.skipped import SkippedRuns
from tests.client.gateway_scene import ANNA, CTX, PATIENT, TEA, founded, texts_of
from tests.processes import RunningRelayer

POLL = [Message(USER, "Look after the disks."), Message(ASSISTANT, "The disk of ares is full.")]
MOVED = "I have lived in Bergen since the spring."  # long enough for every profile
OWN = [Message(USER, TEA), Message(ASSISTANT, "Noted.")]
LATER = [Message(USER, MOVED), Message(ASSISTANT, "A fine town.")]
BEAT = replace(ANNA, trigger="heartbeat")


def skipped(*turns: list[Message], context: Context = BEAT) -> SkippedRuns:
    """What is known after these runs, each of which ended with the session so far."""
    runs, session = SkippedRuns(), list[Message]()
    for turn in turns:
        session += turn
        runs.end(session, context)
    return runs


def test_a_later_window_is_without_them() -> None:
    runs = skipped(POLL)
    assert runs.without([*POLL, *OWN], ANNA) == OWN
    assert runs.without([*POLL, *OWN, *LATER], ANNA) == [*OWN, *LATER]
    assert runs.without([*LATER, *POLL, *OWN], ANNA) == [*LATER, *OWN]


def test_only_the_last_turn_is_of_the_run_that_ends() -> None:
    runs = SkippedRuns()
    runs.end([*OWN, *POLL], BEAT)
    assert runs.without([*OWN, *POLL, *LATER], ANNA) == [*OWN, *LATER]


def test_the_same_words_of_the_user_count() -> None:
    runs, again = skipped(POLL), [POLL[0], Message(ASSISTANT, "It is full.")]
    assert runs.without([*POLL, *again], ANNA) == again
    assert runs.without([*POLL, *again, *LATER], ANNA) == [*again, *LATER]
    assert runs.without([*POLL, *POLL], ANNA) == POLL
    # A gateway may take what failed out of its session.
    assert runs.without(again, ANNA) == again


def test_runs_that_are_alike_are_left_out_as_often_as_they_were() -> None:
    runs = skipped(POLL, POLL, POLL)
    assert runs.without([*POLL, *OWN, *POLL, *POLL, *LATER], ANNA) == [*OWN, *LATER]
    assert runs.without([*POLL, *POLL, *POLL, *POLL, *LATER], ANNA) == [*POLL, *LATER]


def test_what_a_window_has_lost_does_not_matter() -> None:
    summary = Message(ASSISTANT, "They spoke of disks.")
    runs = skipped(POLL, POLL)
    assert runs.without([summary, *POLL, *OWN], ANNA) == [summary, *OWN]
    assert runs.without([POLL[1], *OWN, *LATER], ANNA) == [*OWN, *LATER]
    assert runs.without([*OWN, *LATER], ANNA) == [*OWN, *LATER]


def test_more_answers_than_were_told_go_with_their_prompt() -> None:
    more = Message(ASSISTANT, "And the disk of heron, too.")
    assert skipped(POLL).without([*POLL, more, *OWN], ANNA) == OWN


def test_a_prompt_that_is_told_before_is_known_without_an_end() -> None:
    runs = SkippedRuns()
    runs.begin(POLL[0].text, BEAT)
    runs.begin(POLL[0].text, BEAT)
    assert runs.without([*POLL, *OWN], ANNA) == OWN
    runs.end(POLL, BEAT)
    assert runs.without([*POLL, *POLL, *OWN], ANNA) == [*POLL, *OWN]


def test_what_a_person_says_while_such_a_run_works_is_theirs() -> None:
    runs, session = SkippedRuns(), [*POLL, *LATER]
    runs.begin(POLL[0].text, BEAT)
    runs.end(session, BEAT)
    assert runs.without([*session, *OWN], ANNA) == [*LATER, *OWN]
    told = SkippedRuns()
    told.end([*POLL, replace(LATER[0], origin="external_user"), LATER[1]], BEAT)
    assert told.without([*LATER, *OWN], ANNA) == [*LATER, *OWN]


def test_a_run_that_failed_and_is_tried_again_counts() -> None:
    runs, run = SkippedRuns(), replace(ANNA, run_id="r1")
    asked = replace(OWN[0], origin="external_user")
    runs.end([asked], run, failed=True)
    assert runs.without([asked, *LATER], ANNA) == LATER
    runs.count(run)
    assert runs.without([*OWN, *LATER], ANNA) == [*OWN, *LATER]


def test_an_attempt_after_the_other_is_one_run() -> None:
    runs, run = SkippedRuns(), replace(ANNA, run_id="r1")
    for _ in range(3):
        runs.end(POLL, run, failed=True)
    assert runs.without([*POLL, *POLL, *OWN], ANNA) == [*POLL, *OWN]


def test_a_turn_that_fails_is_not_taken_for_a_run_that_never_ended() -> None:
    runs = SkippedRuns()
    runs.begin(POLL[0].text, BEAT)
    runs.end([*POLL, *OWN], ANNA, failed=True)
    assert runs.without([*POLL, *OWN, *LATER], ANNA) == LATER


def test_words_that_were_put_around_a_message_do_not_hide_it() -> None:
    stamped = replace(POLL[0], text=f"[Sat 2026-11-28 10:15 UTC] {POLL[0].text}")
    assert skipped([stamped, POLL[1]]).without([*POLL, *OWN], ANNA) == OWN


def test_sessions_do_not_mix() -> None:
    runs, other = skipped(POLL), Context(session_key="agent:main:other", session_id="second")
    assert runs.without([*POLL, *OWN], other) == [*POLL, *OWN]
    runs.end([*OWN], replace(other, trigger="cron"))
    assert runs.without([*POLL, *OWN], other) == [*POLL, *OWN], "the last turn always counts"
    assert runs.without([*OWN, *LATER], other) == LATER
    assert runs.without([*POLL, *OWN, *LATER], ANNA) == [*OWN, *LATER]


@pytest.mark.parametrize(
    "later",
    [
        Context(session_key=ANNA.session_key),
        Context(session_id=ANNA.session_id, agent_id="main"),
        Context(session_key=ANNA.session_key, session_id="compressed"),
    ],
)
def test_a_session_is_known_by_any_of_its_names(later: Context) -> None:
    assert skipped(POLL).without([*POLL, *OWN], later) == OWN


def test_what_is_known_is_bounded() -> None:
    runs = SkippedRuns(names_max=4)
    places = [Context(session_key=f"k{name}", session_id=name, trigger="cron") for name in "abc"]
    for place in places:
        runs.end(POLL, place)
    assert runs.without([*POLL, *OWN], places[0]) == [*POLL, *OWN]
    assert runs.without([*POLL, *OWN], places[2]) == OWN
    polls = [Message(USER, f"Poll number {number}.") for number in range(300)]
    for poll in polls:
        runs.end([poll], places[2])
    assert runs.without([*polls, *OWN], places[2]) == [*polls[:172], *OWN]
    many = [Message(ASSISTANT, f"Answer {number}.") for number in range(2000)]
    assert runs.without([*polls, *many, *OWN], places[2]) == [*polls, *many, *OWN]


def event(*turns: list[Message], success: bool = True) -> dict[str, object]:
    said = [
        {"role": message.role, "content": message.text, "provenance": {"kind": message.origin}}
        for turn in turns
        for message in turn
    ]
    return {"success": success, "messages": said}


DECIDED = "I have decided to write three notes about ares."
RUN = [Message(USER, "Write down always what was decided."), Message(ASSISTANT, DECIDED)]


@pytest.mark.parametrize(
    ("context", "success"),
    [
        ({"trigger": "heartbeat"}, True),
        ({"trigger": "cron"}, True),
        ({"trigger": "scheduled"}, True),
        ({"trigger": "memory"}, True),
        ({"trigger": "memory-flush"}, True),
        ({"trigger": "sub-agent"}, True),
        ({"inputProvenance": {"kind": "inter_session"}}, True),
        ({"inputProvenance": {"kind": "internal_system"}}, True),
        ({}, False),
    ],
)
@pytest.mark.parametrize("profile", ["memwal", "memsearch"])
async def test_no_later_turn_captures_a_skipped_run(
    shared_relayer: RunningRelayer, context: dict[str, object], success: bool, profile: str
) -> None:
    owner = await founded(shared_relayer.url)
    chosen = replace(PROFILES[profile], capture_retry_s=0.05, capture_scope="window")
    async with Gateway(Roster.single(owner), chosen) as gateway:
        if success:
            await gateway.before_prompt_build({"prompt": RUN[0].text}, {**CTX, **context})
        await gateway.agent_end(event(RUN, success=success), {**CTX, **context})
        await gateway.agent_end(event(RUN, OWN), CTX)
        await gateway.agent_end(event(RUN, OWN, LATER), CTX)
        assert await gateway.flush(30)
    assert set(await texts_of(owner)) == {TEA, MOVED}


@pytest.mark.parametrize("origin", ["inter_session", "internal_system"])
async def test_a_message_that_tells_its_origin_is_known_after_a_restart(
    shared_relayer: RunningRelayer, origin: str
) -> None:
    owner = await founded(shared_relayer.url)
    told = [replace(RUN[0], origin=origin), RUN[1]]
    async with Gateway(Roster.single(owner), PATIENT) as gateway:
        await gateway.agent_end(event(told, OWN), CTX)
        assert await gateway.flush(30)
    assert await texts_of(owner) == [TEA]
    wanted = replace(PATIENT, skip_heartbeat=False, skip_subagents=False)
    async with Gateway(Roster.single(owner), wanted) as gateway:
        await gateway.agent_end(event(told, OWN), CTX)
        assert await gateway.flush(30)
    assert len(await texts_of(owner)) > 1


@pytest.mark.parametrize("ended", [True, False])
async def test_silence_captures_no_skipped_run(shared_relayer: RunningRelayer, ended: bool) -> None:
    owner = await founded(shared_relayer.url)
    beat = {**CTX, "trigger": "heartbeat", "runId": "r1"}
    async with Gateway(Roster.single(owner), replace(PATIENT, debounce_s=60)) as gateway:
        await gateway.llm_input({"runId": "r1", "prompt": RUN[0].text}, beat)
        await gateway.llm_output({"runId": "r1", "assistantTexts": [DECIDED]}, beat)
        if ended:
            await gateway.agent_end(event(RUN), beat)
        await gateway.llm_input({"runId": "r2", "prompt": TEA}, {**CTX, "runId": "r2"})
        await gateway.agent_end(event(RUN, OWN), {**CTX, "runId": "r2"})
        assert await gateway.flush(30)
    assert await texts_of(owner) == [TEA]


async def test_a_retry_counts(shared_relayer: RunningRelayer) -> None:
    owner = await founded(shared_relayer.url)
    async with Gateway(Roster.single(owner), PATIENT) as gateway:
        run = {**CTX, "runId": "r1"}
        await gateway.agent_end(event(OWN[:1], success=False), run)
        await gateway.agent_end(event(OWN), run)
        assert await gateway.flush(30)
    assert await texts_of(owner) == [TEA]


async def test_a_run_that_was_skipped_is_known_to_gateways_that_share_it(
    shared_relayer: RunningRelayer,
) -> None:
    owner: Settings = await founded(shared_relayer.url)
    runs = SkippedRuns()
    async with Gateway(Roster.single(owner), PATIENT, skipped=runs) as gateway:
        gateway.skip(RUN, ANNA)
    async with Gateway(Roster.single(owner), PATIENT, skipped=runs) as gateway:
        gateway.capture([*RUN, *OWN], ANNA, new={*RUN, *OWN})
        assert await gateway.flush(30)
    assert await texts_of(owner) == [TEA]
