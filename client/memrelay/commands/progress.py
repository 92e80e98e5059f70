"""The progress of a long command, for people who wait for it.

It does not own the work, or what is told at its end.
"""

import time
from collections.abc import Callable
from typing import TextIO


class ProgressLine:
    """Tells on a stream how many memories are `done` (a word) and how fast, once a second."""

    def __init__(
        self, stream: TextIO, done: str, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._done = done
        self._monotonic = monotonic
        self._began_s = monotonic()
        self._told_s = float("-inf")

    def __call__(self, number: int) -> None:
        """Tell, if it is time to."""
        now_s = self._monotonic()
        if now_s - self._told_s < 1.0:
            return
        self._told_s = now_s
        rate = number / max(now_s - self._began_s, 1e-9)
        print(f"{number} {self._done}, {rate:.0f} a second", file=self._stream, flush=True)
