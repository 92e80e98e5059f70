"""Ends a relayer that nobody uses: no request, no stream of events, nothing that waits to be done.

Not here: how it ends (`serve.py`), or who starts it again (a client on the same machine).

- A stream of events is a request that lasts, so it counts for as long as it is open.
- A database that is away for as long again is not waited for: its folder may be gone for good.
- What was accepted is not left undone: jobs and webhooks that are due within the same time count.
  Those that are put off for longer are in the database, and the next start goes on with them.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from relayer.clock import utc_now
from relayer.database import queue, webhooks
from relayer.database.pool import Database
from relayer.logs import warn
from relayer.settings import Settings

log = logging.getLogger("relayer")

LOOK_S: Final = 5.0  # between two looks at what waits, while something does

HasWork = Callable[[], Awaitable[bool]]


class Activity:
    """ASGI middleware: notes how many requests are under way, and when the last one ended."""

    def __init__(self, app: ASGIApp, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._monotonic = monotonic
        self._under_way = 0
        self._ended_s = monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and count it."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        self._under_way += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way -= 1
            self._ended_s = self._monotonic()

    def idle_s(self) -> float:
        """Return for how long there has been no request; 0 while there is one."""
        return 0.0 if self._under_way else self._monotonic() - self._ended_s


async def wait_until_idle(activity: Activity, idle_exit_s: float, has_work: HasWork) -> None:
    """Return once nobody asked for so long, and nothing waits to be done."""
    look_s = min(LOOK_S, idle_exit_s)
    while True:
        left_s = idle_exit_s - activity.idle_s()
        if left_s > 0:
            await asyncio.sleep(left_s)
            continue
        try:
            # Somebody may ask while the database is asked.
            if not await has_work() and activity.idle_s() >= idle_exit_s:
                log.info("nobody asks any more", extra={"event": "serve.idle"})
                return
        except Exception as error:  # what waits is in the database, which may come back
            warn(log, "whether anything waits is not known", "serve.idle", error)
            if activity.idle_s() >= 2 * idle_exit_s:
                return
        await asyncio.sleep(look_s)


async def has_work(database: Database, settings: Settings) -> bool:
    """Tell whether a job or a webhook is due within the time after which the relayer would end."""
    within = timedelta(seconds=settings.idle_exit_s)
    if await queue.is_due(database, within=within):
        return True
    if settings.webhook_reach == "none":
        return False
    return bool(await webhooks.due(database, utc_now() + within, limit=1, each=1, full=()))
