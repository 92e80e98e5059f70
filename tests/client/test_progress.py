"""What people at a terminal are told while a command goes on, and that nobody else is."""

import io
import json
import os
import pty
import re
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from memrelay.cli import EXIT_FAILED, EXIT_OK, main
from memrelay.commands import progress
from memrelay.commands.progress import ProgressLine
from memrelay.secure_files import write_private
from tests.processes import RunningRelayer

KEY = "07" * 32
_getaddrinfo = socket.getaddrinfo


def resolve_here(host: str, *arguments: Any, **options: Any) -> Any:
    """Every name is this machine's."""
    return _getaddrinfo("127.0.0.1", *arguments, **options)


class Terminal:
    """A terminal that may be written to, and what it shows by now."""

    def __init__(self) -> None:
        self._ours, theirs = pty.openpty()
        self.stream: TextIO = os.fdopen(theirs, "w")

    def lines(self) -> list[str]:
        """What was written since."""
        print(end="\0", file=self.stream, flush=True)
        shown = b""
        while not shown.endswith(b"\0"):
            shown += os.read(self._ours, 65_536)
        return shown.decode().rstrip("\0").splitlines()

    def close(self) -> None:
        self.stream.close()
        os.close(self._ours)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.close()


def told(stream: TextIO, steps: Iterable[tuple[int, float]], noun: str = "memory") -> None:
    """Let numbers be reached at so many seconds."""
    now = [0.0]
    with ProgressLine(stream, "done", noun, monotonic=lambda: now[0]) as line:
        for number, now[0] in steps:
            line(number)


def test_a_long_command_is_told_once_a_second_and_at_its_end(terminal: Terminal) -> None:
    reached = [(20, 0.5), (40, 0.9), (60, 1.5), (80, 2.4), (90, 2.5), (90, 3.5), (95, 3.6)]
    told(terminal.stream, reached)
    assert terminal.lines() == [
        "60 memories done, 40 a second",
        "90 memories done, 35 a second",
        "95 memories done, 24 a second",
    ]


def test_the_time_that_is_left_is_told_where_all_are_counted(terminal: Terminal) -> None:
    now = [0.0]
    with ProgressLine(terminal.stream, "done", monotonic=lambda: now[0]) as line:
        line.expect(10_000)
        for number, now[0] in ((0, 0.5), (10, 1.5), (400, 4.5), (9_990, 9.5), (10_001, 11.5)):
            line(number)
    assert terminal.lines() == [
        "10 of 10000 memories done, 10 a second, about 17 min left",
        "400 of 10000 memories done, 100 a second, about 2 min left",
        "9990 of 10000 memories done, 1110 a second, about 1 s left",
        "10001 memories done, 909 a second",
    ]
    told(terminal.stream, [(0, 0.0), (1, 4.0)])
    assert terminal.lines() == ["1 memory done, 15 a minute"]


def test_what_goes_on_after_a_break_is_as_fast_as_it_is_now(terminal: Terminal) -> None:
    told(terminal.stream, [(5_000, 1.5), (5_020, 3.5)])
    assert terminal.lines() == ["5000 memories done", "5020 memories done, 10 a second"]


def test_a_command_that_breaks_off_is_told_how_far_it_came(terminal: Terminal) -> None:
    def interrupted() -> Iterator[tuple[int, float]]:
        yield from [(0, 0.0), (1, 1.0), (2, 1.5)]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        told(terminal.stream, interrupted(), "blob")
    assert terminal.lines() == ["1 blob done, 1 a second", "2 blobs done, 1 a second"]


def test_a_short_command_is_not_told(terminal: Terminal) -> None:
    told(terminal.stream, [(1, 0.9)])
    assert terminal.lines() == []


def test_a_log_is_not_told() -> None:
    log = io.StringIO()
    told(log, [(60, 1.6), (80, 3.0)])
    assert log.getvalue() == ""


def test_who_waits_is_told_once_that_a_request_is_sent_again(
    terminal: Terminal,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    path = tmp_path / "profile.json"
    # Another machine's, as far as its name says.
    away = {"url": "http://relayer.test:9", "account_id": "0x" + "ab" * 32, "private_key": KEY}
    write_private(path, away | {"allow_insecure": True})
    monkeypatch.setattr(socket, "getaddrinfo", resolve_here)
    for argv in (
        ("status",), ("recall", "tea"), ("init", away["url"], "--force", "--allow-insecure"),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", terminal.stream)
            assert main([*argv, "--profile", str(path)], {}) == EXIT_FAILED
            again, failed = terminal.lines()
            assert main([*argv, "--profile", str(path), "--json"], {}) == EXIT_FAILED
            (value,) = terminal.lines()
        reason = "memrelay: http://relayer.test:9 was not reached: connection refused"
        assert again == f"{reason}; trying again."
        assert failed.startswith(reason)
        assert json.loads(value)["code"] == "unreachable"
        assert main([*argv, "--profile", str(path)], {}) == EXIT_FAILED
        assert "trying again" not in capsys.readouterr().err  # which is no terminal


def test_who_refuses_on_this_machine_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing listens there, and nothing will in some seconds."""

    def must_not_sleep(seconds: float) -> None:
        raise AssertionError(seconds)

    monkeypatch.setattr(time, "sleep", must_not_sleep)
    path = tmp_path / "profile.json"
    for host in ("127.0.0.1", "localhost", "[::1]"):
        url = f"http://{host}:9"
        write_private(path, {"url": url, "account_id": "0x" + "ab" * 32, "private_key": KEY})
        for argv in (("status",), ("recall", "tea"), ("remember", "x"), ("init", url, "--force")):
            assert main([*argv, "--profile", str(path)], {}) == EXIT_FAILED
            advice = "does a relayer run there?" if argv[0] == "init" else "`memrelay doctor` says"
            told = f"memrelay: {url} was not reached: connection refused; {advice}"
            assert capsys.readouterr().err.startswith(told)


def test_the_commands_tell_true_numbers(
    terminal: Terminal,
    shared_relayer: RunningRelayer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "_EVERY_S", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    notes, archive = tmp_path / "notes.md", tmp_path / "archive"
    notes.write_text("".join(f"- Note {number} is on the shelf.\n" for number in range(25)))

    def last(*argv: str) -> list[str]:
        """The last line of each kind, without how fast."""
        assert main([*argv, "--profile", str(tmp_path / "profile.json")], {}) == EXIT_OK
        shown = [line.partition(",")[0] for line in terminal.lines()]
        kinds = {re.sub(r"[0-9]+", "", line): line for line in shown}
        return list(kinds.values())

    last("init", shared_relayer.url)
    assert last("import", str(notes)) == ["25 entries done"]
    assert last("export", "--out", str(tmp_path / "pages")) == ["25 of 25 memories exported"]
    assert last("export", str(archive)) == ["25 of 25 memories exported"]
    assert last("import", str(archive)) == ["25 of 25 records brought"]
    assert last("rotate", "--reseal") == ["25 of 25 memories sealed anew"]
    checked = last("verify")
    assert [re.sub(r"[0-9]+", "N", line) for line in checked] == [
        "N receipts checked",
        "N of N blobs checked",
    ]
    assert checked[1] == "25 of 25 blobs checked"
    assert last("forget", "--namespace", "default", "--yes") == ["25 memories erased"]
