"""Draws small charts of numbers in a line of text.

It does not own what is counted. Where the encoding of standard output lacks the blocks, plain
characters stand for them.
"""

from collections.abc import Sequence

from memrelay.commands.streams import can_show

_BLOCKS = "▁▂▃▄▅▆▇█"  # the first is nothing at all, so that a single one is seen beside it
_PLAIN = "_.:-=+*#"


def draw_sparkline(numbers: Sequence[int]) -> str:
    """Return a character for each number: the greatest has the highest, 0 alone the lowest."""
    levels = _BLOCKS if can_show(_BLOCKS) else _PLAIN
    steps = len(levels) - 1
    greatest = max(numbers, default=0) or 1
    return "".join(levels[-(-number * steps // greatest)] for number in numbers)


def draw_bar(number: int, of: int, width: int) -> str:
    """Return a bar of a share of `width` columns, of one at least unless it is nothing."""
    return (_BLOCKS if can_show(_BLOCKS) else _PLAIN)[-1] * -(-number * width // (of or 1))
