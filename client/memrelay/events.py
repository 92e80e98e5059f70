"""Reads the stream of an account's events, and finds where to go on after a break.

`listen` is a generator of steps like the operations of `exchange.py`, and free of I/O like them. It
does not own carrying them out (`event_stream.py`, `async_event_stream.py`).

- Whoever loses the stream goes on after the last event that was complete: none is missed, and the
  last one may come twice.
- What happened so far is told in full or ends with an error: a stream says where that ends.
- An event is of bounded length, and a stream that ends at once is not asked for again at once.

Source: SPEC.md §18.
"""

import re
import secrets
import ssl
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from memrelay.answers import INTEGER_MAX, Answer, make_malformed_error, read_json_object
from memrelay.errors import ConfigError, MemrelayError, RateLimited, TransportError, Unavailable
from memrelay.exchange import (
    Incoming,
    Keep,
    Repeating,
    Send,
    Sleep,
    Wake,
    causes,
    make_transport_error,
    refusal,
)
from memrelay.transport import httpx

READ_S = 45.0  # three signs of life
PAUSE_S_MIN, PAUSE_S_MAX = 0.25, 30.0
EVENT_BYTES_MAX = 2**20


@dataclass(frozen=True, kw_only=True)
class Event(Answer):
    """One thing that happened, by ids alone; `receipt_seq` says where, if a receipt tells of it.

    `place` is what to go on after once it was taken, None where more of the same receipt follows.
    """

    id: str
    type: str
    account_id: str
    time: datetime
    namespace: str | None
    ids: tuple[str, ...]
    receipt_seq: int | None = None
    place: str | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """Read on in the answer to the last `Send`; the outcome is a piece of it, empty at its end."""


# An `Event` is for whoever listens. A `Send` only opens the answer; its outcome is that.
Listening = Generator[Send | Read | Sleep | Keep | Event, Any, None]


def listen(
    after: int | str | None,
    *,
    follow: bool,
    relayer: str,
    monotonic: Callable[[], float],
    repeating: Repeating | None = None,
    wake: Wake | None = None,
) -> Listening:
    """Yield what happens, from now on or `after` a receipt; without `follow`, what did so far.

    `repeating` is told why the stream is asked for again, if it did not just end.

    Raises:
        MemrelayError: it is not worth asking again.
    """
    reader = EventReader(after, follow=follow)
    while True:
        try:
            response: httpx.Response = yield reader.request()
            if response.is_success and not _is_stream(response):
                raise make_malformed_error("its kind: it is no stream of events")
            until_s = monotonic() + READ_S
            incoming = Incoming(
                response,
                left_s=lambda: until_s - monotonic(),  # noqa: B023 - of this answer alone
            )
            while piece := (yield Read()):
                if response.is_success:
                    yield from reader.read(piece)
                else:
                    incoming.take(piece)
            if not response.is_success:
                raise refusal(incoming.whole(), relayer)
            if not follow and reader.has_all():
                return
        except (httpx.HTTPError, MemrelayError) as error:
            explained = _explain(error, relayer)
            if wake is not None and isinstance(explained, TransportError) and not explained.sent:
                yield from wake(explained, monotonic() + READ_S, repeating)
            elif not reader.goes_on_after(explained):
                raise explained from explained.__cause__
            elif repeating is not None:
                repeating(explained)
        yield Sleep(reader.pause_s())


def _explain(error: httpx.HTTPError | MemrelayError, relayer: str) -> MemrelayError:
    if isinstance(error, MemrelayError):
        return error
    explained = make_transport_error(error, relayer)
    explained.__cause__ = error
    return explained


def _is_stream(response: httpx.Response) -> bool:
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower() == "text/event-stream"


class EventReader:
    """Reads a stream line by line and knows how to ask for the rest of it.

    `place` names the last receipt that was told of, None before anything was heard: its number and,
    from relayers that say so, how its hash begins.
    """

    def __init__(self, after: int | str | None, *, follow: bool = True) -> None:
        self.place = None if after is None else parse_place(str(after))
        self._follow = follow
        self._failures = 0
        self._heard = False
        self._data: list[str] = []
        self._held = 0  # bytes of the event that is not complete yet
        self._line = bytearray()
        self._reached: str | None = None
        self._asked = self.place
        self._ended = self._named = self._rests = False

    def request(self) -> Send:
        """Return the request that goes on where this stopped."""
        query = f"?follow={str(self._follow).lower()}"
        query += "" if self.place is None else f"&after={self.place}"
        self._data, self._held, self._reached = [], 0, None
        self._line.clear()
        self._asked, self._ended, self._named, self._rests = self.place, False, False, False
        return Send(
            "GET", f"/v1/events{query}", headers={"accept": "text/event-stream"}, timeout_s=READ_S
        )

    def read(self, piece: bytes) -> Iterator[Event]:
        """Yield the events that a piece of the stream completes.

        Raises:
            ServerError: `answer.malformed`, when one is none, or has no end.
        """
        first, *others = piece.split(b"\n")
        self._line += first
        for following in others:
            line = self._line.removesuffix(b"\r").decode(errors="replace")
            self._line = bytearray(following)
            if (event := self.take(line)) is not None:
                yield event
        if self._held + len(self._line) > EVENT_BYTES_MAX:
            raise make_malformed_error("an event that has no end")

    def take(self, line: str) -> Event | None:
        """Return the event that a line completes, if it does."""
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if line:
            self._rests = line == ": beat" or (self._rests and name == "id")
            if name == "data":
                self._data.append(value)
                self._held += len(line)
            elif name in {"id", "place"} and _PLACE.fullmatch(value):
                self._reached = value
                self._named |= name == "place"
            elif line == ": end":
                self._ended = True
            return None
        self._failures, self._heard = 0, True
        data, self._data, self._held = "\n".join(self._data), [], 0
        event = Event.from_json(read_json_object(data.encode())) if data else None
        if self._reached is not None:
            self.place, self._reached = self._reached, None
            event = event and replace(event, place=self.place)
        return event

    def has_all(self) -> bool:
        """Return if a stream that is over told all that happened so far.

        A relayer of an earlier release never says so: it had all told once it adds nothing but a
        sign of life, which is what its streams end with.

        Raises:
            TransportError: it was cut, and asking again may bring no more.
        """
        if self._ended or self.place != self._asked:
            return self._ended
        if self._named or self._line or self._reached or not self._rests:
            raise TransportError("The stream ended before all was told.")
        return True

    def goes_on_after(self, error: MemrelayError) -> bool:
        """Return if it is worth asking again after this error: what was heard once may come back.

        A certificate that does not hold is not waited for.
        """
        passing = isinstance(error, TransportError | RateLimited | Unavailable) and not any(
            isinstance(cause, ssl.SSLCertVerificationError) for cause in causes(error)
        )
        self._failures += 1
        return self._follow and self._heard and passing

    def pause_s(self) -> float:
        """Return how long to wait before asking again, ever longer while nothing comes."""
        if not self._failures:
            return PAUSE_S_MIN
        longest = min(PAUSE_S_MAX, 0.5 * 2.0 ** min(self._failures, 10))
        return longest * secrets.SystemRandom().uniform(0.5, 1.0)


_PLACE = re.compile(rf"[0-9]{{1,{len(str(INTEGER_MAX))}}}(-[0-9a-f]{{1,64}})?")


def parse_place(text: str) -> str:
    """Return a place that a stream can go on after.

    Raises:
        ConfigError: it is none.
    """
    if not _PLACE.fullmatch(text):
        raise ConfigError("A place is the number of a receipt, or what an event has as its place.")
    return text
