"""Computing beside the loop, where so much of it would keep others waiting.

Not here: waiting for others (`shares.py`). It helps where the work is of many short steps: a thread
that is inside one call of Python's own keeps the interpreter for itself.
"""

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

APART_CHARACTERS_MIN: Final = 16_384  # about ten milliseconds of computing
# As many characters take as long as
HASHING: Final = 8  # hashing a word for the index,
TURNING: Final = 4  # one number of a vector, turned for the first time,
UNDERSTANDING: Final = 16  # a character of a query, looked through for words, tags and times.
OPENED_BYTES: Final = 64  # And so many sealed bytes as long as one.
P = ParamSpec("P")
T = TypeVar("T")


async def apart(size: int, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """The result of some computing, in a thread when there is much of it.

    `size` is in characters of a text that is looked through for secrets, or what takes as long.
    """
    if size < APART_CHARACTERS_MIN:
        return work(*arguments, **named)
    return await asyncio.to_thread(work, *arguments, **named)
