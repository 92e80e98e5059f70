"""The progress of a long command, for people who wait for it.

It does not own the work, or what is told at its end.

- Only a terminal is told: in a log or a mail, the command's own last line says it.
- What is over within a second is told by that line alone.
"""

import time
from collections.abc import Callable
from typing import Self, TextIO

from memrelay.plurals import format_count

_EVERY_S = 1.0


class ProgressLine:
    """Tells on a stream, once a second, how many (of a noun) are `done` (a word), and how fast.

    Where all are counted beforehand, it also tells how long the rest takes at that pace. Leaving
    its block tells how many there were at last, if any line was told before.
    """

    def __init__(
        self,
        stream: TextIO,
        done: str,
        noun: str = "memory",
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._done = done
        self._noun = noun
        self._monotonic = monotonic
        self._watched = stream.isatty()
        self._total: int | None = None
        self._next_s = monotonic() + _EVERY_S
        self._first: tuple[int, float] | None = None
        self._now: tuple[int, int | None] = (0, None)
        self._told: tuple[int, int | None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._told not in (None, self._now):
            self._tell(self._monotonic())

    def expect(self, total: int | None) -> None:
        """Take note of how many there are in all, for who tells numbers alone; None: not known."""
        self._total = total

    def __call__(self, number: int, of: int | None = None) -> None:
        """Take note of a number, of so many in all if that is known; tell it if it is time to."""
        now_s = self._monotonic()
        self._now = number, of
        # What goes on after a break begins with what was done before.
        self._first = self._first or (number, now_s)
        if self._watched and now_s >= self._next_s and self._now != self._told:
            self._tell(now_s)

    def _tell(self, now_s: float) -> None:
        number, of = self._told = self._now
        self._next_s = now_s + _EVERY_S
        of = self._total if of is None else of
        if of is not None and number > of:  # there came more meanwhile
            of = None
        many = (
            format_count(number, self._noun)
            if of is None
            else f"{number} of {format_count(of, self._noun)}"
        )
        before, since_s = self._first or (0, now_s)
        rate = (number - before) / (now_s - since_s) if now_s > since_s else 0.0
        pace = f", {_format_rate(rate)}" if now_s > since_s else ""
        left = f", {_format_left((of - number) / rate)} left" if of and rate and number < of else ""
        print(f"{many} {self._done}{pace}{left}", file=self._stream, flush=True)


def _format_rate(rate: float) -> str:
    return f"{rate:.0f} a second" if rate >= 1 or not rate else f"{60 * rate:.0f} a minute"


def _format_left(seconds: float) -> str:
    for unit_s, name in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * unit_s:
            return f"about {seconds / unit_s:.0f} {name}"
    return f"about {max(1, seconds):.0f} s"
