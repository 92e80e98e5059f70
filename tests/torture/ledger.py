"""What writers were told and what answers were seen: the truth that a run is measured by.

Not here: who writes (`work.py`), what is stored in the end (`checker.py`).

- Every memory has a word that nothing else has, so it is found whatever became of its text.
"""

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

import httpx

from tests.torture.ground import REQUEST_S

SLACK_S = 10.0  # a busy machine's, on top of a relayer's deadline
_SYLLABLES = [c + v for c in "bdfgklmnprtvz" for v in "aiou"]
_SYLLABLES_OF_A_WORD = 6


class Fate(StrEnum):
    """How far a memory is, as its writer knows it."""

    SENT = "sent"  # no answer so far
    ABANDONED = "abandoned"  # never answered, and not asked for again
    STORED = "stored"
    WAITING = "waiting"  # the turn was taken, its facts come later
    ERASING = "erasing"
    ERASED = "erased"


@dataclass
class Entry:
    """One memory. `texts` are those that it may have now: two while an edit is unanswered."""

    word: str
    namespace: str
    texts: set[str]
    exact: bool = True  # else a model or rules found the words, and only `word` counts
    fate: Fate = Fate.SENT
    id: str = ""
    changes: int = 0

    def became(self, fate: Fate) -> None:
        self.fate = fate
        self.changes += 1


@dataclass
class Ledger:
    """One writer's memories; `seed` makes its words its own."""

    seed: str
    namespace: str
    entries: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    def begin(self, sentence: str, *, exact: bool = True) -> Entry:
        """A new memory of a sentence with `{}` where its word comes."""
        word = "".join(self._rng.choices(_SYLLABLES, k=_SYLLABLES_OF_A_WORD))
        entry = Entry(word, self.namespace, {sentence.format(word)}, exact)
        self.entries.append(entry)
        return entry

    def of(self, *fates: Fate) -> list[Entry]:
        return [entry for entry in self.entries if entry.fate in fates]


@dataclass
class Record:
    """Every answer of a run, and what must not have been."""

    statuses: Counter[str] = field(default_factory=Counter)
    acknowledged: Counter[str] = field(default_factory=Counter)
    reads: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    excused: frozenset[str] = frozenset()
    excused_until: float = 0.0

    def excuse(self, codes: frozenset[str]) -> None:
        """From now on, these codes are right, too; without any, the last ones for a moment more."""
        if codes:
            self.excused, self.excused_until = codes, float("inf")
        else:
            self.excused_until = time.monotonic() + SLACK_S

    def is_excused(self, code: str) -> bool:
        return code in self.excused and time.monotonic() < self.excused_until

    def violated(self, what: str) -> None:
        self.violations.append(what)


class Watched(httpx.AsyncHTTPTransport):
    """A transport that notes every answer, and whether it may be."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self._record = record

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        started = time.monotonic()
        route = f"{request.method} {request.url.path.split('/')[2:3]}"
        try:
            response = await super().handle_async_request(request)
            await response.aread()
        except httpx.ConnectError:
            self._record.statuses["not reached"] += 1
            raise
        except httpx.HTTPError as error:
            self._record.statuses["broken off"] += 1
            if isinstance(error, httpx.TimeoutException):
                self._record.violated(f"{route}: no answer in time")
            raise
        self._judge(route, response, time.monotonic() - started)
        return response

    def _judge(self, route: str, response: httpx.Response, took_s: float) -> None:
        record, status = self._record, response.status_code
        record.statuses[str(status)] += 1
        record.slowest_s = max(record.slowest_s, took_s)
        if took_s > REQUEST_S + SLACK_S:
            record.violated(f"{route}: {status} after {took_s:.0f} s")
        if status < 500:
            return
        code = response.json().get("code", "none")
        record.statuses[f"{status} {code}"] += 1
        if status == 503 and response.headers.get("retry-after", "").isdecimal():
            return
        if not record.is_excused(code):
            record.violated(f"{route}: {status} {code}")
