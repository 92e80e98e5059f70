"""Sessions in which a memory was erased: from where on they are captured again."""

import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from memrelay.gateway.erasures import Erasures
from memrelay.gateway.host_events import ASSISTANT, USER, Context, Message

NOW = datetime(2026, 11, 26, 9, 30, tzinfo=UTC)
PLACE = Context(session_key="agent:main:main", session_id="first")
FIRST = [Message(USER, "Berta is my sister."), Message(ASSISTANT, "Noted.")]
FORGETS = [Message(USER, "Forget Berta."), Message(ASSISTANT, "Berta is forgotten.")]
THIRD = [Message(USER, "I prefer tea."), Message(ASSISTANT, "Noted.")]
FOURTH = [Message(USER, "I live in Graz."), Message(ASSISTANT, "A fine town.")]


def in_run(run: str) -> Context:
    return replace(PLACE, run_id=run)


def test_a_window_begins_after_the_turn_that_erased() -> None:
    erasures = Erasures()
    assert erasures.since(FIRST, PLACE, NOW) == FIRST
    erasures.note(PLACE, NOW)
    assert not erasures.since([*FIRST, *FORGETS], PLACE, NOW)
    assert erasures.since([*FIRST, *FORGETS, *THIRD], PLACE, NOW) == THIRD
    assert erasures.since([*FIRST, *FORGETS, *THIRD, *FOURTH], PLACE, NOW) == [*THIRD, *FOURTH]


def test_a_turn_that_is_captured_in_parts_is_one() -> None:
    erasures, [asked, answered] = Erasures(), FORGETS
    erasures.note(PLACE, NOW)
    assert not erasures.since([asked], in_run("a"), NOW)
    assert not erasures.since([asked, answered], in_run("a"), NOW)
    assert erasures.since([*FORGETS, *THIRD], in_run("b"), NOW) == THIRD


def test_an_end_that_comes_late_is_known_by_its_run() -> None:
    erasures = Erasures()
    erasures.note(in_run("a"), NOW)
    assert erasures.since([*FIRST, *FORGETS, *THIRD], in_run("b"), NOW) == THIRD
    assert not erasures.since([*FIRST, *FORGETS], in_run("a"), NOW)


def test_a_turn_that_ended_before_and_comes_late_is_not_captured() -> None:
    erasures, before = Erasures(), NOW - timedelta(minutes=1)
    erasures.note(in_run("b"), NOW)
    assert not erasures.since(FIRST, in_run("a"), before)
    assert not erasures.since([*FIRST, *FORGETS], in_run("b"), NOW)
    assert not erasures.since(FIRST, in_run("a"), before)
    assert erasures.since([*FIRST, *FORGETS, *THIRD], in_run("c"), NOW) == THIRD


def test_an_end_without_messages_leaves_the_cut_where_it_is() -> None:
    erasures = Erasures()
    erasures.note(in_run("a"), NOW)
    assert not erasures.since([*FIRST, *FORGETS], in_run("a"), NOW)
    assert not erasures.since([], in_run("b"), NOW)
    assert erasures.since([*FIRST, *FORGETS, *THIRD], in_run("c"), NOW) == THIRD


def test_words_that_were_put_around_a_message_do_not_hide_it() -> None:
    erasures, [asked, answered] = Erasures(), FORGETS
    erasures.note(PLACE, NOW)
    memories = "<memwal-memories>Berta is her sister.</memwal-memories>"
    assert not erasures.since([Message(USER, f"{memories}\n\n{asked.text}")], PLACE, NOW)
    assert erasures.since([asked, answered, *THIRD], PLACE, NOW) == THIRD


def test_an_answer_that_is_given_again_cuts_nothing() -> None:
    erasures = Erasures()
    erasures.note(PLACE, NOW)
    assert not erasures.since([*FIRST, FORGETS[0], Message(ASSISTANT, "Noted.")], PLACE, NOW)
    assert erasures.since([FORGETS[0], *THIRD], PLACE, NOW) == THIRD
    assert erasures.since([FORGETS[0], *THIRD, *FOURTH, *FIRST], PLACE, NOW)[:2] == THIRD


def test_after_a_compression_a_window_begins_with_its_own_turn() -> None:
    erasures, summary = Erasures(), Message(ASSISTANT, "They spoke of Berta.")
    erasures.note(PLACE, NOW)
    assert not erasures.since([*FIRST, *FORGETS], PLACE, NOW)
    assert erasures.since([summary, *THIRD], PLACE, NOW) == THIRD
    assert erasures.since([summary, *THIRD, *FOURTH], PLACE, NOW) == [*THIRD, *FOURTH]


def test_a_session_is_known_by_its_key_or_its_id() -> None:
    erasures = Erasures()
    erasures.note(Context(session_key="agent:main:main"), NOW)
    assert not erasures.since(FORGETS, PLACE, NOW)
    assert erasures.since(FORGETS, Context(session_id="second"), NOW) == FORGETS
    assert erasures.since(FORGETS, replace(PLACE, agent_id="coder"), NOW) == FORGETS


def test_a_new_session_under_the_same_key_is_captured() -> None:
    erasures, new = Erasures(), replace(PLACE, session_id="second")
    erasures.note(PLACE, NOW)
    assert erasures.since(THIRD, new, NOW) == THIRD
    assert not erasures.since(FORGETS, PLACE, NOW)
    assert erasures.since([*THIRD, *FOURTH], new, NOW) == FOURTH
    assert erasures.since([*THIRD, *FOURTH, *FIRST], new, NOW) == [*FOURTH, *FIRST]


def test_an_earlier_session_under_the_same_key_is_captured_however_late() -> None:
    erasures, before = Erasures(), NOW - timedelta(minutes=1)
    erasures.note(PLACE, NOW)
    assert erasures.since(FIRST, replace(PLACE, session_id="zero"), before) == FIRST
    assert not erasures.since(FIRST, PLACE, before)


def test_another_session_under_the_same_key_may_have_begun_with_what_was_said_in_this() -> None:
    erasures, new = Erasures(), replace(in_run("b"), session_id="second")
    erasures.note(in_run("a"), NOW)
    assert not erasures.since([*FIRST, *FORGETS], in_run("a"), NOW)
    assert erasures.since([*FIRST, *THIRD], new, NOW) == THIRD
    assert erasures.since([*FIRST, *FORGETS, *THIRD, *FOURTH], new, NOW) == [*THIRD, *FOURTH]


@pytest.mark.parametrize("begins", ["is compressed", "is refused to erase"])
def test_another_session_under_the_same_key_keeps_that_cut(begins: str) -> None:
    erasures, new = Erasures(), replace(PLACE, session_id="second")
    erasures.note(PLACE, NOW)
    assert not erasures.since([*FIRST, *FORGETS], PLACE, NOW)
    if begins == "is compressed":
        before, new = new, replace(PLACE, session_id="third")
        erasures.go_on(before, new)
    else:
        erasures.note(new, NOW + timedelta(minutes=1))()
    later = NOW + timedelta(minutes=2)
    assert erasures.since([*FIRST, *FORGETS, *THIRD], new, later) == THIRD


def test_what_another_session_says_or_erases_later_moves_nothing() -> None:
    erasures, new = Erasures(), replace(PLACE, session_id="second")
    before, later = NOW + timedelta(minutes=1), NOW + timedelta(minutes=2)
    erasures.note(PLACE, NOW)
    assert not erasures.since([*FIRST, *FORGETS], PLACE, NOW)
    assert erasures.since([*THIRD, *FOURTH], new, before) == FOURTH
    session = [*FIRST, *FORGETS, *THIRD]
    assert erasures.since([*session, *FOURTH], PLACE, later) == [*THIRD, *FOURTH]
    erasures.note(in_run("c"), later)
    third = replace(PLACE, session_id="third")
    assert erasures.since(session, third, before) == THIRD


def test_a_session_goes_on_under_another_name() -> None:
    erasures = Erasures()
    first, second, third = (Context(session_id=name, run_id="b") for name in "abc")
    erasures.go_on(first, second)
    erasures.note(replace(second, run_id="a"), NOW)
    erasures.go_on(second, third)
    for place in (first, third):
        assert erasures.has_erased(place)
        assert not erasures.since(FIRST, place, NOW - timedelta(minutes=1))
        assert erasures.since([*FIRST, *THIRD], place, NOW) == THIRD


def test_a_fork_begins_with_what_was_said_before_it() -> None:
    erasures = Erasures()
    first, second = Context(session_id="first"), Context(session_id="second")
    erasures.note(first, NOW)
    assert not erasures.since([*FIRST, *FORGETS], first, NOW)
    erasures.fork(first, second)
    assert erasures.since([*FIRST, *FORGETS, *THIRD], second, NOW) == THIRD
    erasures.note(replace(first, run_id="b"), NOW + timedelta(minutes=1))
    assert erasures.since([*FIRST, *FORGETS, *THIRD], second, NOW) == THIRD


def test_a_session_may_fork_while_it_erases() -> None:
    erasures, ended = Erasures(), threading.Event()

    def erase() -> None:
        while not ended.is_set():
            erasures.note(PLACE, NOW)

    thread, interval_s = threading.Thread(target=erase), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        for number in range(20_000):
            erasures.fork(PLACE, Context(session_id=f"{number % 100}"))
    finally:
        ended.set()
        sys.setswitchinterval(interval_s)
        thread.join()


def test_an_earlier_turn_that_erased_is_known_by_its_run() -> None:
    erasures, later = Erasures(), NOW + timedelta(minutes=1)
    erasures.note(in_run("a"), NOW)
    erasures.note(in_run("b"), later)
    assert not erasures.since([*FIRST, *FORGETS], in_run("a"), later)


def test_a_turn_that_erases_twice_costs_no_later_one_that_was_interrupted() -> None:
    erasures, later = Erasures(), NOW + timedelta(minutes=1)
    for _ in range(2):
        erasures.note(in_run("a"), NOW)
    assert not erasures.since([*FIRST, *FORGETS], in_run("a"), NOW)
    session = [*FIRST, *FORGETS, *THIRD, *FOURTH]
    assert erasures.since(session, in_run("c"), later) == [*THIRD, *FOURTH]


def test_a_turn_that_is_handed_over_by_itself_changes_nothing() -> None:
    erasures = Erasures()
    erasures.note(in_run("a"), NOW)
    assert erasures.since(THIRD, in_run("b"), NOW) == THIRD
    assert not erasures.since(FORGETS, in_run("a"), NOW)
    assert erasures.since(FOURTH, in_run("c"), NOW) == FOURTH
    session = [*FIRST, *FORGETS, *THIRD, *FOURTH]
    assert erasures.since(session, in_run("c"), NOW) == [*THIRD, *FOURTH]


def test_the_session_not_seen_for_longest_gives_way() -> None:
    erasures = Erasures(names_max=4)
    places = [Context(session_key=f"k{name}", session_id=name) for name in "abc"]
    for place in places[:2]:
        erasures.note(place, NOW)
    assert not erasures.since(FORGETS, Context(session_id="a"), NOW)
    erasures.note(places[2], NOW)
    assert [erasures.has_erased(place) for place in places] == [True, False, True]
    for context in (Context(session_id="a"), Context(session_key="ka")):
        assert erasures.has_erased(context), "a session is forgotten with all its names"


def test_a_session_with_too_many_names_forgets_its_first_ones() -> None:
    erasures = Erasures(names_max=4)
    sessions = [Context(session_key="k", session_id=f"{number}") for number in range(20)]
    erasures.note(sessions[0], NOW)
    for before, now in pairwise(sessions):
        erasures.go_on(before, now)
    assert erasures.has_erased(Context(session_id="19"))
    assert not erasures.has_erased(Context(session_id="0"))


def test_a_later_turn_may_open_as_the_one_that_erased() -> None:
    erasures = Erasures()
    yes, again = ([Message(USER, "Yes."), answer] for answer in (FORGETS[1], THIRD[1]))
    erasures.note(in_run("a"), NOW)
    assert not erasures.since([*FIRST, *yes], in_run("a"), NOW)
    assert erasures.since([*FIRST, *yes, *again], in_run("b"), NOW) == again
    assert erasures.since([*FIRST, *yes, *again, *FOURTH], in_run("c"), NOW) == FOURTH


def test_without_runs_an_end_that_is_handed_over_twice_is_known_by_its_words() -> None:
    erasures = Erasures()
    erasures.note(PLACE, NOW)
    for _ in range(2):
        assert not erasures.since([*FIRST, *FORGETS], PLACE, NOW)
    assert erasures.since([*FIRST, *FORGETS, *THIRD], PLACE, NOW) == THIRD


def test_an_end_without_messages_is_the_end_of_the_turn_that_erased() -> None:
    erasures = Erasures()
    erasures.note(PLACE, NOW)
    assert not erasures.since([], PLACE, NOW - timedelta(minutes=1)), "that of one before"
    assert not erasures.since([], in_run("a"), NOW)
    assert erasures.since([*FIRST, *FORGETS, *THIRD], in_run("b"), NOW) == THIRD
    assert not erasures.since([*FIRST, *FORGETS], in_run("a"), NOW)


def test_when_a_turn_began_tells_it_from_the_one_that_erased() -> None:
    erasures, before, after = Erasures(), NOW - timedelta(seconds=1), NOW + timedelta(seconds=1)
    erasures.note(PLACE, NOW)
    assert erasures.since(THIRD, in_run("b"), after, began=True) == THIRD
    assert not erasures.since(FORGETS, in_run("a"), before, began=True)
    assert erasures.since(FORGETS, in_run("c"), after, began=True) == FORGETS
    assert erasures.since(THIRD, PLACE, after) == THIRD
    assert not erasures.since(FIRST, in_run("b"), before, began=True)


def test_without_runs_a_turn_that_asks_its_model_again_is_the_same() -> None:
    erasures, before, after = Erasures(), NOW - timedelta(seconds=1), NOW + timedelta(seconds=1)
    for began_at in (before, after):
        erasures.note(PLACE, NOW)
        for at in (began_at, after):
            assert not erasures.since(FORGETS, PLACE, at, began=True)
    assert erasures.since(THIRD, PLACE, after, began=True) == THIRD
