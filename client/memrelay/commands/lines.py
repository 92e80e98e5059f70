"""Memories from a file of JSON lines, and the progress of storing them.

It does not own the storing (`writing.py`). Every line is read and checked before the first one is
sent, so a malformed file stores nothing.
"""

import json
import time
from collections.abc import Callable, Iterable
from typing import TextIO

from memrelay.errors import ConfigError
from memrelay.importing.found import draft_of, unknown_fields
from memrelay.models import Draft


def read_drafts(lines: Iterable[str], warn: Callable[[str], None]) -> list[Draft]:
    """Return the drafts of JSON lines; empty lines are skipped.

    Unknown fields are left out, with one call of `warn` for all of them.

    Raises:
        ConfigError: a line is not an object with a `text`, or a field has another type.
    """
    drafts: list[Draft] = []
    unknown: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            raise ConfigError(f"Line {number} is not JSON.") from None
        try:
            drafts.append(draft_of(value))
        except ValueError as error:
            raise ConfigError(f"Line {number}: {error}.") from None
        unknown |= unknown_fields(value)
    if unknown:
        warn(f"Unknown fields were left out: {', '.join(sorted(unknown))}.")
    return drafts


class ProgressLine:
    """Tells on a stream how many memories are done and how fast, at most once a second."""

    def __init__(
        self,
        stream: TextIO,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        done: str = "stored",
    ) -> None:
        self._stream = stream
        self._done = done
        self._monotonic = monotonic
        self._began_s = monotonic()
        self._told_s = float("-inf")

    def __call__(self, done: int, total: int | None) -> None:
        """Tell, if it is time to or all is done."""
        now_s = self._monotonic()
        if done != total and now_s - self._told_s < 1.0:
            return
        self._told_s = now_s
        rate = done / max(now_s - self._began_s, 1e-9)
        of = "" if total is None else f" of {total}"
        print(f"{done}{of} {self._done}, {rate:.0f} a second", file=self._stream, flush=True)
