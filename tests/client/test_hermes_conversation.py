"""What is heard of a session of Hermes, and what of it may be captured."""

from datetime import timedelta

import pytest

from memrelay.gateway.events import ASSISTANT, USER, Message
from memrelay.hermes.conversation import Conversation

BERTA = [Message(USER, "Berta is my sister."), Message(ASSISTANT, "Noted.")]
SEEKS = Message(ASSISTANT, "I look for your sister Berta.")
FORGETS = [Message(USER, "Forget my sister."), Message(ASSISTANT, "She is forgotten.")]
TEA = [Message(USER, "I prefer tea."), Message(ASSISTANT, "A fine choice.")]


def ended(conversation: Conversation, turn: list[Message]) -> list[Message]:
    return conversation.end(turn[0].text, turn[1].text)[0]


@pytest.mark.parametrize("told", [True, False])
def test_a_turn_that_erases_is_not_captured_and_those_before_no_more(told: bool) -> None:
    conversation = Conversation()
    assert ended(conversation, BERTA) == BERTA
    if told:
        conversation.begin(FORGETS[0].text)
    conversation.erase()
    assert ended(conversation, FORGETS) == []
    if told:
        conversation.begin(TEA[0].text)
    assert ended(conversation, TEA) == TEA


def test_a_turn_that_ended_late_is_not_captured_after_an_erasure() -> None:
    conversation = Conversation()
    for turn in (BERTA, FORGETS):
        conversation.begin(turn[0].text)
    conversation.erase()
    assert ended(conversation, BERTA) == []


def test_a_compression_captures_nothing_from_before_an_erasure() -> None:
    conversation = Conversation()
    conversation.begin(FORGETS[0].text)
    conversation.erase()
    assert conversation.rest([*BERTA, FORGETS[0], SEEKS]) == []
    assert ended(conversation, FORGETS) == []
    conversation.begin(TEA[0].text)
    later = [*TEA, FORGETS[1]]  # an answer may be given again
    assert conversation.rest([*BERTA, FORGETS[0], SEEKS, FORGETS[1], *later]) == TEA


def test_a_new_session_has_nothing_erased() -> None:
    conversation = Conversation()
    assert not conversation.erased
    conversation.begin(FORGETS[0].text)
    conversation.erase()
    assert conversation.erased
    conversation.forget()
    assert not conversation.erased


def test_a_session_that_is_resumed_is_captured_only_after_its_erasure() -> None:
    conversation = Conversation()
    conversation.begin(FORGETS[0].text)
    conversation.erase()
    assert ended(conversation, FORGETS) == []
    conversation.forget()
    conversation.begin("Good morning.")
    assert conversation.rest([*BERTA, *FORGETS, *TEA]) == TEA


def test_a_compression_knows_a_turn_that_was_interrupted_after_an_erasure() -> None:
    conversation = Conversation()
    conversation.begin(FORGETS[0].text)
    conversation.erase()
    conversation.begin(TEA[0].text)
    assert conversation.rest([*BERTA, FORGETS[0], SEEKS, *TEA]) == TEA


def test_a_turn_begins_in_the_machines_time_zone(eight_hours_west: None) -> None:
    conversation = Conversation()
    conversation.begin(TEA[0].text)
    _, began, _ = conversation.end(TEA[0].text, TEA[1].text)
    assert began is not None
    assert began.utcoffset() == timedelta(hours=-8)
