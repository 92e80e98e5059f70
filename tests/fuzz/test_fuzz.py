"""The fuzzer finds what it should, and the parsers stand a short run of it.

Not here: long runs (`make fuzz`, BENCHMARKS.md).
"""

import subprocess
import sys

import pytest

from tests.fuzz import loop
from tests.fuzz.loop import Outcome, Parser, fuzzed
from tests.fuzz.parsers import PARSERS

RUNS = 150  # of each parser; the same in every run of the tests
SHARES = 3  # of the parsers, so that test processes work side by side
HERE = sys.modules[__name__]


def lock(data: bytes) -> None:
    """Opens, and breaks, only for what has one right byte after another."""
    if data[:1] == b"k":
        if data[1:2] == b"e":
            if data[2:3] == b"y":
                raise KeyError("opened")
            len(data)
        len(data)


def endless(data: bytes) -> None:
    while data[:1] == b"k":
        len(data)


def greedy(data: bytes) -> None:
    bytes(2**30 if data[:1] == b"k" else 1)


def _found(read: loop.Parser, runs: int = 60_000) -> Outcome:
    return fuzzed(read, seed=1, runs=runs)


def _planted(read: object) -> Parser:
    assert callable(read)
    return Parser([HERE], lambda: [b"begin"], read)


def test_a_failure_behind_several_steps_is_found_the_same_way_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "FAILURES_MAX", 1)
    outcome = _found(_planted(lock))
    ((what, data),) = outcome.failures.items()
    assert what.startswith("KeyError at test_fuzz.py:")
    assert data.startswith(b"key")
    again = _found(_planted(lock))
    assert (again.failures, again.kept, again.steps) == (
        outcome.failures,
        outcome.kept,
        outcome.steps,
    )


def test_what_takes_too_long_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CPU_S_MAX", 0.02)
    monkeypatch.setattr(loop, "FAILURES_MAX", 1)
    (what,) = _found(_planted(endless)).failures
    assert what.startswith("TooSlow at")


def test_what_takes_too_much_memory_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "FAILURES_MAX", 1)
    (what,) = _found(_planted(greedy)).failures
    assert what.startswith("MemoryError at")


@pytest.mark.parametrize("share", range(SHARES))
def test_parsers_answer_or_refuse_whatever_comes(share: int) -> None:
    """Readers of foreign bytes end with an answer or a refusal that they document."""
    names = list(PARSERS)[share::SHARES]
    # In a process of its own: the loop follows lines as the measuring of coverage does.
    command = [sys.executable, "-m", "tests.fuzz", *names, "--runs", str(RUNS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == names
