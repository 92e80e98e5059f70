"""Following events over breaks: what is told in full, what is asked again, and what ends it."""

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from memrelay import (
    MemoryClient,
    MemrelayError,
    ServerError,
    SyncMemoryClient,
    TransportError,
    Unavailable,
)
from memrelay.events import Event, EventReader
from tests.fuzz.parsers.answers import AT, ID

STREAM = {"content-type": "text/event-stream"}


def told(*places: int) -> bytes:
    """What a stream tells of receipts of these numbers."""
    text = ""
    for place in places:
        event = {
            "id": str(place), "type": "memory.written", "account_id": "0x", "time": AT,
            "namespace": "team", "ids": [ID], "receipt_seq": place,
        }  # fmt: skip
        text += f"id: {place}\nevent: memory.written\ndata: {json.dumps(event)}\n\n"
    return text.encode()


def opened(place: int) -> bytes:
    return f"retry: 1000\nid: {place}\n\n".encode()


def ended(place: int) -> bytes:
    return f": end\nid: {place}\n\n".encode()


@dataclass
class Answer:
    """What is answered to one request; one that is cut lacks its end."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: STREAM)
    cut: bool = False


@contextmanager
def answering(*answers: Answer) -> Iterator[tuple[str, list[str]]]:
    """A server that gives these answers, the last one from then on; its URL, what was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers[min(len(asked), len(answers) - 1)]
            asked.append(self.path)
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body) + answer.cut))
            self.end_headers()
            self.wfile.write(answer.body)
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


Listen = Callable[..., list[Event]]
KEY: Any = {"account_id": "0x" + "ab" * 32, "private_key": "7b" * 32}


@pytest.fixture
def why() -> list[MemrelayError]:
    """What a client said before it asked again."""
    return []


@pytest.fixture(params=["blocking", "awaited"])
def listen(request: pytest.FixtureRequest, why: list[MemrelayError]) -> Listen:
    """What a client hears of a stream, until it ends or `count` events came."""

    def hear(url: str, *, count: int = 1_000, **options: Any) -> list[Event]:
        heard: list[Event] = []
        with SyncMemoryClient(url=url, repeating=why.append, **KEY) as client:
            for event in client.events(**options):
                heard.append(event)
                if len(heard) == count:
                    break
        return heard

    def awaited(url: str, *, count: int = 1_000, **options: Any) -> list[Event]:
        async def run() -> list[Event]:
            heard: list[Event] = []
            async with MemoryClient(url=url, repeating=why.append, **KEY) as client:
                async for event in client.events(**options):
                    heard.append(event)
                    if len(heard) == count:
                        break
            return heard

        return asyncio.run(run())

    return hear if request.param == "blocking" else awaited


def seqs(heard: list[Event]) -> list[int | None]:
    return [event.receipt_seq for event in heard]


class TestSoFar:
    def test_what_a_relayer_cut_short_is_asked_for(self, listen: Listen) -> None:
        """One that stops ends its streams as if nothing more had happened."""
        first, rest = Answer(opened(0) + told(1, 2)), Answer(opened(2) + told(3) + ended(4))
        with answering(first, rest) as (url, asked):
            assert seqs(listen(url, after=0, follow=False)) == [1, 2, 3]
        assert asked == [f"/v1/events?follow=false&after={n}" for n in (0, 2)]

    def test_what_says_that_it_is_all_is_not_asked_for_again(self, listen: Listen) -> None:
        with answering(Answer(opened(0) + told(1) + ended(1))) as (url, asked):
            assert seqs(listen(url, after=0, follow=False)) == [1]
        assert len(asked) == 1

    def test_a_relayer_that_says_no_end_has_told_all_once_it_adds_nothing(
        self, listen: Listen
    ) -> None:
        """As one of an earlier release does, also of what this key may not see."""
        beat = b": beat\nid: 5\n\n"
        answers = Answer(opened(0) + told(1) + beat), Answer(opened(5) + beat)
        with answering(*answers) as (url, asked):
            assert seqs(listen(url, after=0, follow=False)) == [1]
        assert asked == [f"/v1/events?follow=false&after={n}" for n in (0, 5)]

    @pytest.mark.parametrize("release", ["this one", "the one before"])
    @pytest.mark.parametrize("happened", [(), (1, 2)])
    def test_wherever_a_stream_is_cut_it_is_not_taken_for_all(
        self, release: str, happened: tuple[int, ...]
    ) -> None:
        """As by a proxy whose answers end with their connection."""
        last = len(happened)
        beat = f": beat\nid: {last}\n\n".encode()
        whole = opened(0) + (beat if not last else b"") + told(*happened)
        whole += beat if release == "the one before" else ended(last)
        if release == "this one":
            whole = re.sub(rb"(id: (\d+)\n)", rb"\1place: \2-0123456789abcdef\n", whole)
        for cut in range(len(whole)):
            reader = EventReader(0, follow=False)
            reader.request()
            heard = list(reader.read(whole[:cut]))
            with contextlib.suppress(TransportError):
                if reader.has_all():
                    assert seqs(heard) == list(happened), whole[:cut]
                    assert cut > len(opened(0)), "it was hardly begun"

    def test_one_that_says_where_the_end_is_and_stops_before_has_not_told_all(
        self, listen: Listen
    ) -> None:
        cut = Answer(b"id: 0\nplace: 0\n\n")
        early = pytest.raises(TransportError, match="before all was told")
        with answering(cut) as (url, asked), early:
            listen(url, after=0, follow=False)
        assert len(asked) == 1


class TestRefused:
    @pytest.mark.parametrize("kind", ["text/html", "application/json", "text/event-streams", ""])
    @pytest.mark.parametrize("follow", [True, False])
    def test_what_is_no_stream_is_not_taken_for_an_empty_one(
        self, listen: Listen, kind: str, follow: bool
    ) -> None:
        page = Answer(b"<html><p>Accept our terms.</p></html>", headers={"content-type": kind})
        with answering(page) as (url, asked), pytest.raises(ServerError) as caught:
            listen(url, follow=follow)
        assert caught.value.code == "answer.malformed"
        assert len(asked) == 1

    def test_the_kind_of_a_stream_may_have_parameters(self, listen: Listen) -> None:
        kind = {"content-type": "Text/Event-Stream; charset=utf-8"}
        with answering(Answer(told(1) + ended(1), headers=kind)) as (url, _):
            assert seqs(listen(url, follow=False)) == [1]


AWAY = Answer(b"{}", status=503, headers={"content-type": "application/json"})


class TestFollowing:
    def test_a_break_is_told_and_gone_on_after(
        self, listen: Listen, why: list[MemrelayError]
    ) -> None:
        """An end is none: every stream has one."""
        answers = (
            Answer(opened(0) + told(1)),
            Answer(opened(1) + told(2), cut=True),
            AWAY,
            Answer(opened(2) + told(3)),
        )
        with answering(*answers) as (url, asked):
            assert seqs(listen(url, count=3)) == [1, 2, 3]
        assert [type(error) for error in why] == [TransportError, Unavailable]
        assert asked[0] == "/v1/events?follow=true"
        assert asked[1:] == [f"/v1/events?follow=true&after={n}" for n in (1, 2, 2)]

    def test_who_reaches_nobody_is_told_so(self, listen: Listen) -> None:
        with answering(AWAY) as (url, asked), pytest.raises(Unavailable):
            listen(url)
        assert len(asked) == 1
        with pytest.raises(TransportError, match="was not reached"):
            listen(url)
