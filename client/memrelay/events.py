"""What happens to an account, as a stream tells it: its lines read, and how to go on after a break.

It does not own the connection (`client.py`).

- Whoever loses the stream goes on after the last event that was complete: none is missed, and the
  last one may come twice.

Source: SPEC.md §18.
"""

import json
import secrets
from dataclasses import dataclass
from datetime import datetime

from memrelay.answers import Answer
from memrelay.errors import RateLimited, ServerError, Unavailable
from memrelay.exchange import Send

READ_S = 45.0  # three signs of life
PAUSE_S_MAX = 30.0


@dataclass(frozen=True, kw_only=True)
class Event(Answer):
    """One thing that happened, by ids alone; `receipt_seq` says where, if a receipt tells of it."""

    id: str
    type: str
    account_id: str
    time: datetime
    namespace: str | None
    ids: tuple[str, ...]
    receipt_seq: int | None = None


class EventReader:
    """Reads a stream line by line and knows how to ask for the rest of it.

    `place` is the number of the last receipt that was told of, None before anything was heard.
    """

    def __init__(self, after: int | None, *, follow: bool = True) -> None:
        self.place = after
        self._follow = follow
        self._failures = 0
        self._data: list[str] = []
        self._last_id: int | None = None

    def request(self) -> Send:
        """Return the request that goes on where this stopped."""
        query = f"?follow={str(self._follow).lower()}"
        query += "" if self.place is None else f"&after={self.place}"
        self._data, self._last_id = [], None
        return Send(
            "GET", f"/v1/events{query}", headers={"accept": "text/event-stream"}, timeout_s=READ_S
        )

    def take(self, line: str) -> Event | None:
        """Return the event that a line completes, if it does."""
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if line:
            if name == "data":
                self._data.append(value)
            elif name == "id" and value.isascii() and value.isdigit():
                self._last_id = int(value)
            return None
        self._failures = 0
        data, self._data = "\n".join(self._data), []
        event = Event.from_json(_parsed(data)) if data else None
        if self._last_id is not None:
            self.place, self._last_id = self._last_id, None
        return event

    def lost(self, error: Exception) -> None:
        """Return if it is worth asking again after this error.

        Raises:
            Exception: the error itself, if it is not.
        """
        transient = not isinstance(error, ServerError) or isinstance(
            error, (RateLimited, Unavailable)
        )
        if not (self._follow and transient):
            raise error
        self._failures += 1

    def pause_s(self) -> float:
        """Return how long to wait before asking again, ever longer while nothing comes."""
        if not self._failures:
            return 0.0
        longest = min(PAUSE_S_MAX, 0.5 * 2.0 ** min(self._failures, 10))
        return longest * secrets.SystemRandom().uniform(0.5, 1.0)


def _parsed(data: str) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise ServerError(
            "The stream holds what is no event.", status=200, code="answer.malformed"
        ) from None
