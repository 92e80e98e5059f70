"""The mirror of Hermes' own memory where something is odd; no Hermes, no relayer."""

import logging
import socket
import threading
from dataclasses import replace

import pytest

from memrelay import Settings
from memrelay.gateway import Context, Roster
from memrelay.gateway.roster import Binding
from memrelay.hermes.mirror import Mirror

AWAY = Settings(url="http://127.0.0.1:9", account_id=f"0x{'1' * 64}", private_key="1" * 64)
SECRET = "The user is called Bo."


class Broken(Roster):
    """A roster with a defect, which tells what it was doing."""

    def bind(self, context: Context) -> Binding | None:
        raise RuntimeError(SECRET)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if line.name == "memrelay.hermes"]


def test_what_goes_wrong_unexpectedly_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    mirror = Mirror(Broken(AWAY), Context())
    mirror.write("add", SECRET, old_text="")
    mirror.close(30)
    assert logged(caplog) == ["a change of Hermes' own memory was not mirrored (RuntimeError)"]
    assert "Bo" not in caplog.text


def test_a_change_after_the_end_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    mirror = Mirror(Roster.single(AWAY), Context())
    mirror.close(30)
    mirror.write("add", SECRET, old_text="")
    assert logged(caplog) == ["a change of Hermes' own memory was not mirrored (RuntimeError)"]


def test_a_relayer_that_hangs_does_not_keep_the_process() -> None:
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        mirror = Mirror(Roster.single(replace(AWAY, url=url)), Context())
        mirror.write("add", SECRET, old_text="")
        with silent.accept()[0]:  # it waits for an answer
            [thread] = set(threading.enumerate()) - before
        assert thread.daemon  # the interpreter's end waits for no such thread
        mirror.close(30)
        assert not thread.is_alive()


def test_changes_are_repeated_in_their_order(caplog: pytest.LogCaptureFixture) -> None:
    mirror = Mirror(Broken(AWAY), Context())
    for _ in range(3):
        mirror.write("add", SECRET, old_text="")
    mirror.close(30)
    assert len(logged(caplog)) == 3


@pytest.mark.parametrize(
    ("action", "content", "old_text"),
    [
        ("add", None, ""),
        ("add", ["text"], ""),
        ("replace", None, "called Bo"),
        ("replace", SECRET, 5),
        ("remove", "", None),
        ("remove", None, None),
    ],
)
def test_what_is_no_text_is_not_mirrored(
    caplog: pytest.LogCaptureFixture, action: str, content: object, old_text: object
) -> None:
    mirror = Mirror(Roster.single(AWAY), Context())
    with caplog.at_level(logging.WARNING):
        mirror.write(action, content, old_text=old_text)
        mirror.close(30)
    assert logged(caplog) == []  # an attempt would tell that the relayer is away


def test_a_removal_needs_no_content(caplog: pytest.LogCaptureFixture) -> None:
    mirror = Mirror(Roster.single(AWAY), Context())
    mirror.write("remove", None, old_text="called Bo")
    mirror.close(30)
    assert len(logged(caplog)) == 1  # it was tried


def test_a_thread_that_cannot_begin_costs_its_change_and_not_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mirror = Mirror(Broken(AWAY), Context())
    usual = threading.stack_size(1 << 46)  # more than there is, as where the interpreter is ending
    try:
        mirror.write("add", SECRET, old_text="")
    finally:
        threading.stack_size(usual)
    assert len(logged(caplog)) == 1
    mirror.close(30)
