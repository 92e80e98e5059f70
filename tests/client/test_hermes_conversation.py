"""What is heard of a session of Hermes, and what of it may be captured."""

from datetime import UTC, datetime, timedelta

import pytest

from memrelay.gateway import Context
from memrelay.gateway.erasures import Erasures
from memrelay.gateway.host_events import ASSISTANT, USER, Message
from memrelay.hermes.session_tracker import Conversation

BERTA = [Message(USER, "Berta is my sister."), Message(ASSISTANT, "Noted.")]
SEEKS = Message(ASSISTANT, "I look for your sister Berta.")
FORGETS = [Message(USER, "Forget my sister."), Message(ASSISTANT, "She is forgotten.")]
TEA = [Message(USER, "I prefer tea."), Message(ASSISTANT, "A fine choice.")]
SUMMARY = Message(USER, "[CONTEXT COMPACTION] They spoke of Berta.")


class Scene:
    """A session, and what of it may be captured; other objects may hear it as well."""

    def __init__(self, erasures: Erasures | None = None) -> None:
        self.erasures = erasures or Erasures()
        self.conversation = Conversation()

    def context(self, run: str | None = None) -> Context:
        return Context(session_id="one", run_id=run or self.conversation.run)

    def begin(self, turn: list[Message]) -> None:
        self.conversation.begin(turn[0].text)

    def erase(self) -> None:
        self.erasures.note(self.context(), datetime.now(UTC))

    def ended(self, turn: list[Message]) -> list[Message]:
        window, began, run = self.conversation.end(turn[0].text, turn[1].text)
        at = began or datetime.now(UTC)
        return list(self.erasures.since(window, self.context(run), at, began=began is not None))

    def rest(self, messages: list[Message]) -> list[Message]:
        said, new = self.conversation.rest(messages)
        kept = self.erasures.since(said, self.context(), datetime.now(UTC))
        return [message for message in kept if message in new]


@pytest.mark.parametrize("told", [True, False])
def test_a_turn_that_erases_is_not_captured_and_those_before_no_more(told: bool) -> None:
    scene = Scene()
    assert scene.ended(BERTA) == BERTA
    if told:
        scene.begin(FORGETS)
    scene.erase()
    assert scene.ended(FORGETS) == []
    if told:
        scene.begin(TEA)
    assert scene.ended(TEA) == TEA


def test_a_turn_that_ended_late_is_not_captured_after_an_erasure() -> None:
    scene = Scene()
    for turn in (BERTA, FORGETS):
        scene.begin(turn)
    scene.erase()
    assert scene.ended(BERTA) == []


def test_a_compression_captures_nothing_from_before_an_erasure() -> None:
    scene = Scene()
    scene.begin(FORGETS)
    scene.erase()
    assert scene.rest([*BERTA, FORGETS[0], SEEKS]) == []
    assert scene.ended(FORGETS) == []
    scene.begin(TEA)
    later = [*TEA, FORGETS[1]]  # an answer may be given again
    assert scene.rest([*BERTA, FORGETS[0], SEEKS, FORGETS[1], *later]) == TEA


def test_a_session_that_is_resumed_is_captured_only_after_its_erasure() -> None:
    scene = Scene()
    scene.begin(FORGETS)
    scene.erase()
    assert scene.ended(FORGETS) == []
    for resumed in (scene, Scene(scene.erasures)):  # Hermes may have another object for it
        resumed.conversation.forget()
        resumed.begin(TEA)
        assert resumed.rest([*BERTA, *FORGETS, *TEA]) == TEA


def test_a_session_that_another_object_cut_is_captured_from_then_on() -> None:
    scene = Scene()
    scene.begin(FORGETS)
    scene.erase()
    assert scene.ended(FORGETS) == []
    for said in (TEA, BERTA):
        later = Scene(scene.erasures)
        later.begin(said)
        assert later.ended(said) == said


def test_a_compression_knows_a_turn_that_was_interrupted_after_an_erasure() -> None:
    scene = Scene()
    scene.begin(FORGETS)
    scene.erase()
    scene.begin(TEA)
    assert scene.rest([*BERTA, FORGETS[0], SEEKS, *TEA]) == TEA


def test_what_hermes_wrote_itself_was_not_said() -> None:
    assert Scene().rest([SUMMARY, *TEA]) == TEA


def test_a_turn_begins_in_the_machines_time_zone(eight_hours_west: None) -> None:
    conversation = Conversation()
    conversation.begin(TEA[0].text)
    _, began, _ = conversation.end(TEA[0].text, TEA[1].text)
    assert began is not None
    assert began.utcoffset() == timedelta(hours=-8)
