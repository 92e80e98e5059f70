"""Whoever in the relayer holds a connection asks for no second one.

With all connections held by those who wait for a lock of the first, the second would only come by
a time-out. `guarded` makes every such request fail at once, however many connections are free.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import relayer
from relayer.database import pool
from relayer.database.pool import Database

_RELAYER = str(Path(relayer.__file__).parent)
_PASSED_OVER = (pool.__file__, __file__, asynccontextmanager.__code__.co_filename)


@contextmanager
def guarded() -> Iterator[None]:
    """Let no task of the relayer hold two connections; a test may, beside the relayer."""
    connection = Database.connection
    held: Counter[asyncio.Task[Any] | None] = Counter()

    @asynccontextmanager
    async def only(database: Database) -> AsyncIterator[Any]:
        task = asyncio.current_task() if _is_relayer() else None
        assert task is None or not held[task], "a second connection is asked for"
        async with connection(database) as one:
            held[task] += 1
            try:
                yield one
            finally:
                held[task] -= 1
                if not held[task]:
                    del held[task]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "connection", only)
        yield


def _is_relayer() -> bool:
    """Whether the relayer, and not a test, asks for a connection."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename in _PASSED_OVER:
        frame = frame.f_back
    return frame.f_code.co_filename.startswith(_RELAYER)
