"""When an operation is not worth a try, and how much of that is logged."""

import logging

import pytest

from memrelay.errors import NotGranted, QuotaExceeded, TimedOut, TransportError
from memrelay.gateway.outage import _PLACES_MAX, CAPTURE, RECALL, Outages

PAUSE_S = 10.0
REFUSED = TransportError("no", sent=False)


class Scene:
    """Outages at a time that stands still unless it is told."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.outages = Outages(lambda: self.now_s)

    def failed(self, error: Exception, agent: str = "a", *, age_s: float = 0) -> None:
        self.outages.note_failure("k", agent, RECALL, error, began_s=self.now_s - age_s)

    def paused(self, agent: str = "a", *, key: str = "k", operation: str = RECALL) -> bool:
        return self.outages.is_paused(key, agent, operation, PAUSE_S)


def test_who_does_not_reach_the_relayer_waits_with_all_of_its_key() -> None:
    scene = Scene()
    scene.failed(REFUSED)
    assert scene.paused()
    assert scene.paused("b")
    assert not scene.paused("b", key="another")
    assert not scene.paused("b", operation=CAPTURE)
    scene.now_s += PAUSE_S
    assert not scene.paused()


@pytest.mark.parametrize("late", [TimeoutError(), TimedOut("late")])
def test_one_late_answer_stops_nobody_and_two_in_a_row_do(late: Exception) -> None:
    scene = Scene()
    scene.failed(late, age_s=1)
    assert not scene.paused()
    scene.now_s += 5
    scene.failed(late, "b", age_s=1)
    assert scene.paused()
    assert scene.paused("b")


def test_a_hundred_late_answers_at_once_are_one_sign() -> None:
    scene = Scene()
    for number in range(100):
        scene.now_s += 0.005
        scene.failed(TimeoutError(), f"agent{number}", age_s=1)
    assert not scene.paused()
    scene.now_s += 1
    scene.failed(TimeoutError(), age_s=0.9)
    assert scene.paused()


def test_answers_that_are_late_one_by_one_are_seen_although_they_overlap() -> None:
    scene = Scene()
    for _ in range(5):
        scene.failed(TimeoutError(), age_s=1)
        scene.now_s += 0.3
    assert scene.paused()


def test_an_answer_in_time_lets_the_next_late_one_pass() -> None:
    scene = Scene()
    for _ in range(5):
        scene.failed(TimeoutError(), age_s=1)
        scene.outages.note_success("k", "b", RECALL)
        scene.now_s += 5
    assert not scene.paused()


def test_after_a_pause_one_late_answer_is_enough() -> None:
    scene = Scene()
    scene.failed(REFUSED)
    scene.now_s += PAUSE_S + 1
    scene.failed(TimeoutError(), age_s=0.5)
    assert scene.paused()


@pytest.mark.parametrize("error", [NotGranted("no"), QuotaExceeded("full", status=402)])
def test_what_one_agent_is_refused_stops_no_other(error: Exception) -> None:
    scene = Scene()
    scene.failed(error)
    assert scene.paused()
    assert not scene.paused("b")
    scene.outages.note_success("k", "b", RECALL)
    assert scene.paused()
    scene.outages.note_success("k", "a", RECALL)
    assert not scene.paused()


def test_an_outage_has_one_warning_and_one_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "memrelay.gateway")
    scene = Scene()
    for agent in "abc":
        scene.failed(REFUSED, agent)
        scene.outages.note_failure("k", agent, CAPTURE, REFUSED, began_s=scene.now_s)
    scene.outages.note_success("k", "a", RECALL)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    scene.outages.note_success("k", "z", CAPTURE)
    scene.outages.note_success("k", "b", CAPTURE)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_any_number_of_agents_is_remembered_in_bounds() -> None:
    scene = Scene()
    for number in range(_PLACES_MAX + 10):
        scene.failed(NotGranted("no"), f"agent{number}")
    assert len(scene.outages._failures) == _PLACES_MAX
    assert not scene.paused("agent0")
    assert scene.paused(f"agent{_PLACES_MAX + 9}")
