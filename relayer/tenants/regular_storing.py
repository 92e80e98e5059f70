"""Storing what requests noted in memory, behind all answers.

Not here: what is noted (`key_uses.py`, `recall_counts.py`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from relayer.logs import warn

STORE_EVERY_S: Final = 60.0
STORE_LAST_S: Final = 2.0  # at the end of the process


async def store_regularly(
    store: Callable[[], Awaitable[None]], log: logging.Logger, message: str, event: str
) -> None:
    """Call `store` every minute; until it is cancelled, and then once more.

    One that fails is logged, with these fixed words.
    """
    try:
        while True:
            await asyncio.sleep(STORE_EVERY_S)
            await store_quietly(store, log, message, event)
    finally:
        await store_quietly(store, log, message, event, STORE_LAST_S)


async def store_quietly(
    store: Callable[[], Awaitable[None]],
    log: logging.Logger,
    message: str,
    event: str,
    limit_s: float | None = None,
) -> None:
    """Call `store`; if it fails or takes longer than `limit_s`, log these fixed words."""
    try:
        async with asyncio.timeout(limit_s):
            await store()
    except Exception as error:
        warn(log, message, event, error)
