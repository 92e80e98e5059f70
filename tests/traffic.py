"""Agents at work while a relayer is killed, replaced or restarted: what they wrote, what failed."""

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from memrelay import MemrelayError
from tests.life import until
from tests.processes import all_texts, client

WRITES_A_CONNECTION = 3
DEADLINE_S = 200.0  # of one write, on a busy machine


@dataclass
class Traffic:
    """What has come of the requests so far; a failure is one that its client did not mend."""

    acknowledged: dict[str, list[str]]
    answered: int = 0
    failures: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)  # no text of an earlier traffic

    def goes_on(self, writes: int = 5) -> None:
        """Wait until every writer had so many more writes acknowledged."""
        before = {who: len(texts) for who, texts in self.acknowledged.items()}
        until(
            lambda: (
                bool(self.failures)
                or all(len(t) >= before[who] + writes for who, t in self.acknowledged.items())
            ),
            "writers go on",
        )
        assert self.failures == []

    def write(self, who: str, account: dict[str, Any], url: str) -> None:
        """Remember one thing after the other, now and then by a new connection."""
        number = 0
        while not self.stopping.is_set():
            with client(account, url, deadline_s=DEADLINE_S) as memory:
                for _ in range(WRITES_A_CONNECTION):
                    text = f"{who} noted the item {self.mark} {number}."
                    try:
                        memory.remember(text, idempotency_key=f"{self.mark}-{number}")
                    except MemrelayError as error:
                        self.failures.append(f"{who}: {error!r}")
                        return
                    self.acknowledged[who].append(text)
                    number += 1

    def ask(self, url: str) -> None:
        """Ask for the health over and over by one connection as long as it lives; never twice."""
        with httpx.Client(timeout=DEADLINE_S) as plain:
            while not self.stopping.is_set():
                try:
                    assert plain.get(f"{url}/health").status_code == 200
                except (httpx.HTTPError, AssertionError) as error:
                    self.failures.append(repr(error))
                    return
                self.answered += 1


@contextmanager
def traffic(url: str, accounts: dict[str, dict[str, Any]], *, askers: int = 0) -> Iterator[Traffic]:
    """Writers of these accounts, and askers that never repeat a request, at work meanwhile."""
    going = Traffic({who: [] for who in accounts})
    work: Sequence[Callable[[], None]] = [
        *(lambda who=who: going.write(who, accounts[who], url) for who in accounts),
        *([lambda: going.ask(url)] * askers),
    ]
    with ThreadPoolExecutor(len(work)) as pool:
        futures = [pool.submit(one) for one in work]
        try:
            yield going
        finally:
            going.stopping.set()
            for future in futures:
                future.result(timeout=DEADLINE_S + 60)
    assert going.failures == []


def lost_or_doubled(url: str, account: dict[str, Any], acknowledged: list[str]) -> list[str]:
    """Texts that were acknowledged and are not stored exactly once."""
    with client(account, url) as memory:
        stored = all_texts(memory)
    return [text for text in acknowledged if stored.count(text) != 1]
