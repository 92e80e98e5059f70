"""Computing in a thread, where so much of it would keep the event loop from other requests.

Not here: waiting for others (`concurrency.py`). It helps where the work is of many short steps: a
thread that is inside one call of Python's own keeps the interpreter for itself.
"""

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

# Work is measured in characters of a text that is looked through for secrets.
OFFLOADED_MIN: Final = 16_384  # about ten milliseconds
# What else there is to do, in such characters:
HASHING: Final = 8  # a word for the index
TURNING: Final = 4  # one number of a vector, for the first time
PARSING: Final = 16  # a character of a query, for its words, tags and times
OPENED_BYTES: Final = 64  # so many sealed bytes are opened in the time of one
P = ParamSpec("P")
T = TypeVar("T")


async def offload(size: int, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Return the result of some computing of this size, in a thread when there is much of it."""
    if size < OFFLOADED_MIN:
        return work(*arguments, **named)
    return await asyncio.to_thread(work, *arguments, **named)
