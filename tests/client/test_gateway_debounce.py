"""Capture by silence: when a turn counts as over, and what is captured of it."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from memrelay.gateway import Context, Message
from memrelay.gateway.debounce import Debounce

FIRST = Context(session_id="s1", run_id="r1")
SECOND = Context(session_id="s1", run_id="r2")
LONG_S = 60.0
THEN = datetime(2026, 11, 26, 9, 30, tzinfo=UTC)


class Scene:
    """A debounce, and what it captured."""

    def __init__(self) -> None:
        self.now = THEN
        self.debounce = Debounce(lambda: self.now)
        self.captured: list[list[str]] = []
        self.times: list[datetime | None] = []
        self.done = asyncio.Event()

    def capture(
        self, messages: Sequence[Message], context: Context, *, occurred_at: datetime | None
    ) -> None:
        self.times.append(occurred_at)
        self.captured.append([f"{message.role}: {message.text}" for message in messages])
        self.done.set()

    def asked(self, prompt: str, context: Context = FIRST) -> None:
        self.debounce.note_prompt({"prompt": prompt}, context)

    def answered(self, *texts: object, context: Context = FIRST, silence_s: float = LONG_S) -> None:
        event = {"assistantTexts": list(texts)}
        self.debounce.note_answer(event, context, silence_s=silence_s, capture=self.capture)


async def test_each_answer_begins_the_silence_anew() -> None:
    """capability 2.3: silence captures a turn, and each answer begins it anew."""
    scene = Scene()
    scene.asked("one?")
    scene.answered("answer 0", silence_s=0.01)
    scene.answered("answer 1", silence_s=LONG_S)
    await asyncio.sleep(0.2)  # the first silence would be over
    assert scene.captured == []
    scene.answered("answer 2", silence_s=0.01)
    await asyncio.wait_for(scene.done.wait(), 60)
    assert scene.captured == [["user: one?", *(f"assistant: answer {n}" for n in range(3))]]


async def test_the_next_question_captures_the_turn_before() -> None:
    """capability 2.4: a new question while a turn waits captures that turn first."""
    scene = Scene()
    scene.asked("one?")
    scene.answered("first")
    scene.asked("one, with what a tool said?")  # the same run goes on
    assert scene.captured == []
    scene.asked("two?", SECOND)
    assert scene.captured == [["user: one?", "assistant: first"]]
    scene.answered("second", context=SECOND)
    scene.debounce.flush()
    assert scene.captured[1:] == [["user: two?", "assistant: second"]]


async def test_without_runs_each_question_is_a_turn() -> None:
    scene, nameless = Scene(), Context(session_id="s1")
    scene.asked("one?", nameless)
    scene.answered("first", context=nameless)
    scene.asked("two?", nameless)
    assert scene.captured == [["user: one?", "assistant: first"]]


async def test_the_end_of_a_run_takes_over_what_waits() -> None:
    """capability 2.5: the end of a run captures what still waits for silence, and all of it."""
    scene = Scene()
    scene.asked("one?")
    scene.answered("first")
    assert not scene.debounce.note_end(FIRST)  # the hook is to capture all of it
    scene.answered("late")
    scene.debounce.flush()
    assert scene.captured == []


async def test_the_end_of_a_captured_run_adds_only_the_rest() -> None:
    """capability 2.5: what silence has captured, the end of the run does not capture again."""
    scene = Scene()
    scene.asked("one?")
    scene.answered("first")
    scene.debounce.flush()
    scene.answered("second")
    assert scene.debounce.note_end(FIRST)
    assert scene.captured == [
        ["user: one?", "assistant: first"],
        ["user: one?", "assistant: second"],
    ]
    assert not scene.debounce.note_end(FIRST)


async def test_a_late_end_of_an_earlier_run_is_its_own() -> None:
    scene = Scene()
    scene.asked("two?", SECOND)
    scene.answered("second", context=SECOND)
    scene.debounce.flush()
    assert not scene.debounce.note_end(FIRST)  # silence has captured nothing of it
    scene.answered("more", context=SECOND)
    assert scene.debounce.note_end(SECOND)
    assert scene.captured[1:] == [["user: two?", "assistant: more"]]


async def test_an_answer_after_the_next_question_is_captured_with_the_end_of_its_run() -> None:
    scene = Scene()
    scene.asked("one?")
    scene.answered("let me look")
    scene.asked("two?", SECOND)
    scene.answered("the answer")
    assert not scene.debounce.note_end(FIRST)  # the hook is to capture all of it
    scene.answered("second", context=SECOND)
    scene.debounce.flush()
    assert scene.captured[1:] == [["user: two?", "assistant: second"]]


async def test_every_late_answer_of_an_earlier_run_is_its_own() -> None:
    scene = Scene()
    scene.asked("one?")
    scene.answered("part 1")
    scene.asked("two?", SECOND)
    scene.answered("part 2")
    scene.answered("part 3")
    scene.answered("two!", context=SECOND)
    assert not scene.debounce.note_end(FIRST)  # the hook is to capture all of it
    assert scene.debounce.note_end(FIRST)  # handed over a second time
    scene.answered("part 4")  # the hook has captured it
    scene.debounce.flush()
    assert scene.captured == [
        ["user: one?", "assistant: part 1"],
        ["user: two?", "assistant: two!"],
    ]


async def test_the_first_answer_of_an_earlier_run_is_its_own() -> None:
    scene = Scene()
    scene.asked("one?")
    scene.asked("two?", SECOND)
    scene.answered("answer to one")
    scene.answered("answer to two", context=SECOND)
    assert not scene.debounce.note_end(FIRST)
    scene.debounce.flush()
    assert scene.captured == [["user: two?", "assistant: answer to two"]]
    assert scene.debounce.note_end(SECOND)


async def test_an_answer_after_the_end_of_a_captured_run_is_captured_by_silence() -> None:
    scene = Scene()
    scene.asked("one?")
    scene.answered("first")
    scene.asked("two?", SECOND)
    assert scene.debounce.note_end(FIRST)
    scene.answered("late", silence_s=0.01)
    scene.done.clear()
    await asyncio.wait_for(scene.done.wait(), 60)
    scene.answered("second", context=SECOND)
    scene.debounce.flush()
    assert scene.debounce.note_end(SECOND)
    scene.answered("later", context=SECOND)
    scene.debounce.flush()
    assert scene.captured == [
        ["user: one?", "assistant: first"],
        ["user: one?", "assistant: late"],
        ["user: two?", "assistant: second"],
        ["user: two?", "assistant: later"],
    ]


async def test_late_answers_are_captured_without_an_end() -> None:
    """Not every gateway tells the end of a run."""
    scene = Scene()
    scene.asked("one?")
    scene.asked("two?", SECOND)
    scene.answered("late", silence_s=0.01)
    await asyncio.wait_for(scene.done.wait(), 60)
    assert scene.captured == [["user: one?", "assistant: late"]]
    assert scene.debounce.note_end(FIRST)


async def test_late_answers_of_a_run_that_is_no_longer_known_are_captured() -> None:
    scene = Scene()
    scene.asked("one?")
    for number in range(2, 11):
        assert scene.captured == []
        scene.asked(f"{number}?", Context(session_id="s1", run_id=f"r{number}"))
        if number < 10:
            scene.answered(f"late {number}")
    assert scene.captured == [["user: one?", *(f"assistant: late {n}" for n in range(2, 10))]]
    scene.answered("later")
    scene.debounce.flush()
    assert scene.captured[1:] == [["assistant: later"]]  # not under another question


async def test_an_earlier_run_that_asks_again_goes_on() -> None:
    scene = Scene()
    scene.asked("one?")
    scene.asked("two?", SECOND)
    scene.answered("second", context=SECOND)
    scene.asked("one, with what a tool said?")
    assert scene.captured == []
    scene.answered("first")
    scene.debounce.flush()
    assert scene.captured == [
        ["user: one?", "assistant: first"],
        ["user: two?", "assistant: second"],
    ]


async def test_a_late_end_of_a_run_that_the_next_question_captured_adds_nothing() -> None:
    scene = Scene()
    scene.asked("one?")
    scene.answered("first")
    scene.asked("two?", SECOND)
    assert scene.debounce.note_end(FIRST)
    scene.answered("second", context=SECOND)
    scene.asked("three?", Context(session_id="s1", run_id="r3"))
    assert scene.debounce.note_end(FIRST)  # handed over a second time
    assert scene.debounce.note_end(SECOND)
    assert scene.captured == [
        ["user: one?", "assistant: first"],
        ["user: two?", "assistant: second"],
    ]


async def test_a_late_end_of_a_run_without_an_answer_is_its_own() -> None:
    scene = Scene()
    scene.asked("one?")
    scene.asked("two?", SECOND)
    assert not scene.debounce.note_end(FIRST)  # nothing of it was captured


async def test_of_the_runs_that_were_captured_the_newest_are_known() -> None:
    scene = Scene()
    runs = [Context(session_id="s1", run_id=f"r{number}") for number in range(100)]
    for run in runs:
        scene.asked("again?", run)
        scene.answered("answer", context=run)
    assert [scene.debounce.note_end(run) for run in runs[:-1]] == [False] * 91 + [True] * 8


async def test_sessions_do_not_disturb_each_other() -> None:
    scene, other = Scene(), Context(session_id="s2", run_id="r9")
    scene.asked("one?")
    scene.answered("first")
    scene.asked("elsewhere?", other)
    assert scene.captured == []
    assert not scene.debounce.note_end(other)
    scene.debounce.flush()
    assert scene.captured == [["user: one?", "assistant: first"]]


async def test_agents_without_sessions_do_not_disturb_each_other() -> None:
    scene, anna, bob = Scene(), Context(agent_id="anna"), Context(agent_id="bob")
    scene.asked("one?", anna)
    scene.asked("elsewhere?", bob)
    scene.answered("first", context=anna)
    scene.debounce.flush()
    assert scene.captured == [["user: one?", "assistant: first"]]


async def test_sessions_are_named_by_the_event_too() -> None:
    scene = Scene()
    event = {"sessionId": "s1", "runId": "r1", "prompt": "one?", "assistantTexts": ["first"]}
    scene.debounce.note_answer(event, Context(), silence_s=LONG_S, capture=scene.capture)
    assert not scene.debounce.note_end(FIRST)
    scene.debounce.flush()
    assert scene.captured == []


async def test_odd_answers_are_no_text() -> None:
    scene = Scene()
    scene.answered(None, 7, "", "  ", ["x"])
    scene.debounce.note_answer(
        {"assistantTexts": "letters"}, FIRST, silence_s=LONG_S, capture=scene.capture
    )
    scene.debounce.flush()
    assert scene.captured == []


async def test_the_oldest_of_many_sessions_is_captured_early() -> None:
    scene = Scene()
    for number in range(300):
        context = Context(session_id=f"s{number}")
        scene.answered(f"answer {number}", context=context)
    assert scene.captured[0] == ["assistant: answer 0"]
    assert len(scene.captured) == 44
    scene.debounce.flush()
    assert len(scene.captured) == 300


async def test_a_turn_is_captured_as_of_its_question_however_late_its_answer_comes() -> None:
    scene = Scene()
    scene.asked("one?")
    scene.answered("let me look")
    scene.now += timedelta(minutes=1)
    scene.asked("two?", SECOND)
    scene.answered("here it is")
    scene.answered("nobody told what was asked", context=Context(session_id="s2", run_id="r3"))
    scene.debounce.flush()
    assert scene.times == [THEN, THEN, None]
