"""Repair of text that is nearly JSON, by a library, in a time that has an end.

It does not own finding such a piece in an answer (`decoding.py`).

- The library looks at some texts again and again: its time grows with the square of them, and
  16,000 characters can take it 10 s. It is stopped after a number of looks at characters, of which
  a real answer needs three for each.
- It is loaded only here, when it is needed.
"""

import json
from typing import Any, Final

PIECE_CHARS_MAX: Final = 64_000
LOOKS_MAX: Final = 1_000_000  # about 0.4 s
_DEPTH_MAX: Final = 24  # of brackets in one another; an answer has five


class _TooMuch(Exception):
    """The library has looked long enough."""


class Meter:
    """Counts looks at characters, for all repairs of one answer."""

    def __init__(self, looks_max: int = LOOKS_MAX) -> None:
        self._looks_left = looks_max

    def count(self, looks: int) -> None:
        """Count as many looks; raises when there are none left."""
        self._looks_left -= looks
        if self._looks_left < 0:
            raise _TooMuch


class _Metered(str):
    """A text whose reader is counted; parts of it and what they join to count on."""

    meter: Meter

    def __getitem__(self, key: Any) -> str:
        part = str.__getitem__(self, key)
        self.meter.count(1 + len(part))
        return _meter(part, self.meter) if isinstance(key, slice) else part

    def __add__(self, other: str) -> "_Metered":
        return _meter(str.__add__(self, other), self.meter)


def _meter(text: str, meter: Meter) -> _Metered:
    one = _Metered(text)
    one.meter = meter
    return one


def repair(piece: str, meter: Meter) -> Any:
    """Return the value that `piece` was meant to be; None if it is none, or too much work."""
    if len(piece) > PIECE_CHARS_MAX or _depth(piece) > _DEPTH_MAX:
        return None
    import json_repair  # noqa: PLC0415  # most answers need none of it

    try:
        made = json_repair.repair_json(
            _meter(piece, meter), skip_json_loads=True, ensure_ascii=False
        )
        return json.loads(made) if made else None
    except Exception:  # it reads rubbish: whatever it raises, this is no value
        return None


def _depth(piece: str) -> int:
    depth = deepest = 0
    for sign in piece:
        if sign in "{[(":
            depth += 1
            deepest = max(deepest, depth)
        elif sign in "}])":
            depth = max(0, depth - 1)
    return deepest
