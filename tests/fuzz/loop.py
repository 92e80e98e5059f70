"""The loop: change inputs that led somewhere new, and keep those that do so again.

Not here: how inputs are changed (`mutation.py`), what reads them (`parsers/`).

- The same seed and number of runs make the same inputs.
- What counts as new is a step from one line to another, within the parser's own modules.
- A run ends with what the parser says or with a refusal that it documents. Anything else fails:
  another exception, more processor time or memory than an input may cost.
"""

import contextlib
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from tests.fuzz.mutation import mutated

CPU_S_MAX = 2.0  # for one input, traced; a parser that needs it would hold up everybody
MEMORY_BYTES_MAX = 512 * 2**20  # beyond what the process has when it begins
LINES_MAX = 1_000  # watched of one call: loops over bytes lead nowhere new for long
FAILURES_MAX = 10  # distinct ones; then there is enough to do


@dataclass(frozen=True)
class Parser:
    """Something that reads foreign bytes: `read` returns, or it has failed."""

    modules: Sequence[ModuleType]
    seeds: Callable[[], Iterable[bytes]]
    read: Callable[[bytes], object]
    words: Sequence[bytes] = ()


@dataclass
class Outcome:
    """What came of fuzzing one parser."""

    runs: int = 0
    seconds: float = 0.0  # of processor time
    kept: int = 0
    steps: int = 0
    slowest_ms: float = 0.0
    failures: dict[str, bytes] = field(default_factory=dict)


class TooSlow(BaseException):
    """An input cost too much; no handler of a parser catches it."""


class Steps:
    """Which steps from line to line were taken in some files."""

    def __init__(self, modules: Iterable[ModuleType]) -> None:
        self._files = {module.__file__ for module in modules}
        self._seen: set[tuple[CodeType, int, int]] = set()
        self._wanted: dict[CodeType, bool] = {}

    def __len__(self) -> int:
        return len(self._seen)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Watch what runs meanwhile."""
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)

    def _call(self, frame: FrameType, _: str, __: Any) -> Any:
        code = frame.f_code
        wanted = self._wanted.get(code)
        if wanted is None:
            wanted = self._wanted[code] = code.co_filename in self._files
        return self._lines(code) if wanted else None

    def _lines(self, code: CodeType) -> Any:
        seen, last, left = self._seen, 0, LINES_MAX

        def line(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal last, left
            if event == "line":
                seen.add((code, last, frame.f_lineno))
                last, left = frame.f_lineno, left - 1
            return line if left else None

        return line


def fuzzed(
    parser: Parser, *, seed: int, runs: int | None = None, seconds: float | None = None
) -> Outcome:
    """Fuzz until there were that many runs, or for so many seconds of processor time."""
    random_ = random.Random(seed)  # inputs come again by it
    steps, outcome = Steps(parser.modules), Outcome()
    began = time.process_time()
    corpus: list[bytes] = []
    with _limited():
        for seed_input in parser.seeds():
            if _tried(parser, seed_input, steps, outcome) or not corpus:
                corpus.append(seed_input)
        while not _over(outcome, began, runs, seconds):
            changed = mutated(random_, corpus, parser.words)
            if _tried(parser, changed, steps, outcome):
                corpus.append(changed)
    outcome.seconds = time.process_time() - began
    outcome.kept, outcome.steps = len(corpus), len(steps)
    return outcome


def _over(outcome: Outcome, began: float, runs: int | None, seconds: float | None) -> bool:
    if len(outcome.failures) >= FAILURES_MAX:
        return True
    if runs is not None and outcome.runs >= runs:
        return True
    return seconds is not None and time.process_time() - began >= seconds


def _tried(parser: Parser, data: bytes, steps: Steps, outcome: Outcome) -> bool:
    """Run once; whether it led somewhere new."""
    known = len(steps)
    began = time.process_time()
    try:
        with steps.watched(), _timed():
            parser.read(data)
    except (Exception, TooSlow) as error:
        outcome.failures.setdefault(_name(error), data)
    outcome.runs += 1
    outcome.slowest_ms = max(outcome.slowest_ms, 1000 * (time.process_time() - began))
    return len(steps) > known


def _name(error: BaseException) -> str:
    """What failed where, so that the same defect is told once."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [
        f"{f.filename.rpartition('/')[2]}:{f.lineno}"
        for f in frames
        if "fuzz/loop" not in f.filename
    ]
    return f"{type(error).__name__} at {' → '.join(places[-3:])}: {str(error)[:200]}"


@contextlib.contextmanager
def _timed() -> Iterator[None]:
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """No input takes more memory or time than allowed, here in the main thread."""

    def stop(_: int, __: FrameType | None) -> None:
        raise TooSlow(f"over {CPU_S_MAX} s")

    pages = Path("/proc/self/statm").read_text().split()[0]
    used = int(pages) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGVTALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES_MAX, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGVTALRM, handler)
