"""When a request is repeated, and when it must not be."""

import socket
import ssl

import httpx
import pytest

from memrelay.errors import (
    BadRequest,
    NotFound,
    NotOffered,
    RateLimited,
    ServerError,
    TimedOut,
    TransportError,
    Unavailable,
)
from memrelay.exchange import ATTEMPTS_MAX, Exchange, Send, Sleep

SEND = Send("POST", "/v1/recall")
DONE = httpx.Response(200, json={"ok": 1})
BUSY = httpx.Response(503, json={"code": "upstream.unavailable"}, headers={"retry-after": "3"})
LIMITED = httpx.Response(429, json={}, headers={"retry-after": "2"})


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def run(*replies, repeatable=True, deadline_s=60.0):
    """Play replies in order; return the result, the pauses and the number of sends."""
    clock, waiting, pauses, sends = Clock(), list(replies), [], []
    exchange = Exchange(timeout_s=30.0, deadline_s=deadline_s, monotonic=clock)
    operation = exchange.run(SEND, repeatable)
    try:
        step = next(operation)
        while True:
            if isinstance(step, Sleep):
                pauses.append(step.seconds)
                clock.now_s += step.seconds
                step = operation.send(None)
                continue
            sends.append(step)
            reply = waiting.pop(0)
            failed = isinstance(reply, Exception)
            step = operation.throw(reply) if failed else operation.send(reply)
    except StopIteration as done:
        assert not waiting
        return done.value, pauses, sends


def fails(kind, *replies, **options):
    with pytest.raises(kind) as caught:
        run(*replies, **options)
    return caught.value


def test_an_answer_is_returned_at_once():
    assert run(DONE)[:2] == ({"ok": 1}, [])


@pytest.mark.parametrize(
    "first",
    [
        BUSY,
        LIMITED,
        httpx.ConnectError("x"),
        httpx.ConnectTimeout("x"),
        httpx.RemoteProtocolError("x"),
        httpx.ReadError("x"),
        httpx.Response(502),
        httpx.Response(504),
    ],
)
def test_what_does_no_harm_is_repeated(first):
    result, pauses, sends = run(first, DONE)
    assert result == {"ok": 1}
    assert (len(pauses), len(sends)) == (1, 2)


def test_retry_after_is_honoured():
    assert run(BUSY, DONE)[1][0] >= 3.0
    assert run(LIMITED, DONE)[1][0] >= 2.0


def test_pauses_grow_and_vary():
    pauses = run(*[httpx.ConnectError("x")] * 3, DONE)[1]
    assert all(0.25 * 2**n / 2 <= pause <= 0.25 * 2**n for n, pause in enumerate(pauses, 1))
    assert len({run(httpx.ConnectError("x"), DONE)[1][0] for _ in range(8)}) > 1


@pytest.mark.parametrize("first", [httpx.ConnectError("x"), httpx.ConnectTimeout("x"), LIMITED])
def test_what_certainly_had_no_effect_is_always_repeated(first):
    assert run(first, DONE, repeatable=False)[0] == {"ok": 1}


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (BUSY, Unavailable),
        (httpx.Response(502), Unavailable),
        (httpx.ReadError("x"), TransportError),
        (httpx.RemoteProtocolError("x"), TransportError),
    ],
)
def test_what_may_have_had_an_effect_is_not_repeated(first, kind):
    fails(kind, first, repeatable=False)


@pytest.mark.parametrize("repeatable", [True, False])
@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (httpx.ReadTimeout("x"), TimedOut),
        (httpx.WriteTimeout("x"), TimedOut),
        (httpx.Response(400, json={}), BadRequest),
        (httpx.Response(404, json={"code": "not_found", "message": "No such memory."}), NotFound),
        (httpx.Response(500, json={}), ServerError),
        (httpx.Response(501, json={"code": "llm.not_configured"}), NotOffered),
        (httpx.Response(302, headers={"location": "https://elsewhere"}), ServerError),
    ],
)
def test_what_repeating_cannot_cure_is_not_repeated(first, kind, repeatable):
    fails(kind, first, repeatable=repeatable)


@pytest.mark.parametrize(
    "body",
    [{}, {"code": "route.unknown", "message": "No such route."}, {"code": "x"}],
)
def test_a_place_without_a_relayer_lacks_no_memory(body):
    error = fails(ServerError, httpx.Response(404, json=body))
    assert not isinstance(error, NotFound)
    assert (error.code, error.message) == (
        "http.404",
        "The relayer has no such route: is that the relayer's URL?",
    )


@pytest.mark.parametrize(
    ("error", "cause", "words"),
    [
        (httpx.ConnectError("x"), socket.gaierror(), "no address is known for its name"),
        (httpx.ConnectError("x"), ConnectionRefusedError(), "connection refused"),
        (httpx.ConnectError("x"), ssl.SSLCertVerificationError(), "its certificate does not hold"),
        (httpx.ConnectError("x"), ssl.SSLError(), "it does not speak TLS"),
        (httpx.ConnectTimeout("x"), TimeoutError(), "no connection came about in time"),
        (httpx.ConnectError("x"), None, "no connection came about"),
    ],
)
def test_why_nobody_was_reached_is_told(error, cause, words):
    error.__cause__ = cause
    told = str(fails(TransportError, *[error] * ATTEMPTS_MAX))
    assert told == f"The relayer was not reached: {words}."


def test_attempts_and_time_are_bounded():
    fails(TransportError, *[httpx.ConnectError("x")] * ATTEMPTS_MAX)
    late = httpx.Response(503, headers={"retry-after": "61"})
    assert fails(Unavailable, late).retry_after_s == 61.0
    fails(RateLimited, LIMITED, deadline_s=2.0)


def test_no_attempt_is_given_more_time_than_is_left():
    sends = run(BUSY, DONE, deadline_s=10.0)[2]
    assert sends[0].timeout_s == 10.0
    assert sends[1].timeout_s <= 7.0


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"1"])
def test_an_answer_that_is_no_json_object_is_an_error(body):
    error = fails(ServerError, httpx.Response(200, content=body))
    assert error.code == "answer.malformed"


def test_the_cause_does_not_reach_the_message():
    error = fails(TransportError, *[httpx.ConnectError("secret host")] * ATTEMPTS_MAX)
    assert "secret" not in str(error)
    assert error.sent is False
