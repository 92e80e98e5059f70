"""JSON of any length, read value by value: the items of an array, or the objects of lines.

It does not own what the values mean.

- Only one value is held at a time, and that has a bound. What cannot be read ends the reading: what
  stands behind it has no sure beginning.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, TextIO

VALUE_CHARS_MAX: Final = 64 << 20
_CHUNK_CHARS: Final = 1 << 20
_BLANK: Final = " \t\r\n"
_TOO_LONG: Final = "an entry is longer than 64 MiB"


def values(stream: TextIO) -> Iterator[Any]:
    """Yield the items of an array; of what is no array, the values that follow one another.

    Raises:
        ValueError: it is not JSON, or a value is too long.
        RecursionError: a value is nested too deeply.
    """
    window = _Window(stream)
    is_array = window.take("[")
    while window.first() and not (is_array and window.take("]")):
        yield window.value()
        if is_array and not window.take(",") and window.first() != "]":
            raise ValueError("not JSON")


class _Window:
    """The part of a stream that is being decoded."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._text = ""
        self._at = 0
        self._decoder = json.JSONDecoder()

    def first(self) -> str:
        """Return the next character that is not blank; nothing at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _BLANK:
                self._at += 1
            if self._at < len(self._text) or not self._grow():
                return self._text[self._at : self._at + 1]

    def take(self, mark: str) -> bool:
        """Pass over a mark if it comes next."""
        if self.first() != mark:
            return False
        self._at += 1
        return True

    def value(self) -> Any:
        """Return the next value, with as much of the stream as it needs."""
        self.first()
        while True:
            try:
                found, end = self._decoder.raw_decode(self._text, self._at)
                # A number at the end of the window may go on.
                if end < len(self._text) or not self._grow():
                    break
            except ValueError:
                if len(self._text) - self._at > VALUE_CHARS_MAX:
                    raise ValueError(_TOO_LONG) from None
                if not self._grow():
                    raise ValueError("not JSON") from None
        self._at = end
        return found

    def _grow(self) -> bool:
        """Read on, twice as much as there is; return whether there was any."""
        rest = self._text[self._at :]
        more = self._stream.read(max(_CHUNK_CHARS, len(rest)))
        self._text, self._at = rest + more, 0
        return bool(more)
