"""Requests that come again: as they were, or with another request under the same nonce.

Not here: repeats that need a second relayer, a crash, or to arrive at once (`test_replays.py`).
"""

import time
import uuid
from collections.abc import Callable
from typing import Any

from tests.refusals.case import Case, Script, Signed
from tests.refusals.world import World

Pair = Callable[[World], tuple[Signed, Signed]]


def _again(name: str, pair: Pair) -> Case:
    """The first request passes, the second must not."""

    def build(w: World) -> Script:
        first, second = pair(w)
        return Script([first.sent()], [second.sent()])

    return Case(f"replay/{name}", "GET /v1/keys", build, 401, "auth.rejected")


def _same(request: Signed) -> tuple[Signed, Signed]:
    return request, request


def _reusing(first: Signed, **members: str) -> dict[str, Any]:
    return {"nonce": first.nonce, "timestamp": first.timestamp} | members


def _with_nonce(second: Callable[[World, dict[str, Any]], Signed]) -> Pair:
    """Another request that is signed anew, under a nonce that was used."""

    def pair(w: World) -> tuple[Signed, Signed]:
        first = w.got("/v1/keys")
        return first, second(w, _reusing(first))

    return pair


def _dated(offset_s: int) -> Pair:
    return lambda w: _same(w.got("/v1/keys", timestamp=str(int(time.time()) + offset_s)))


def _spelled(change: Callable[[str], str]) -> Pair:
    def pair(w: World) -> tuple[Signed, Signed]:
        nonce = f"a{str(uuid.uuid4())[1:]}"
        return w.got("/v1/keys", nonce=nonce), w.got("/v1/keys", nonce=change(nonce))

    return pair


CASES = [
    _again("the-same-request", lambda w: _same(w.got("/v1/keys"))),
    _again("the-same-request-with-a-body", lambda w: _same(w.asked())),
    _again("the-same-request-of-a-reader", lambda w: _same(w.got("/v1/keys", w.reader))),
    _again("the-same-request-on-a-sealed-account", lambda w: _same(w.got("/v1/keys", w.agent))),
    _again("dated-290-s-ago", _dated(-290)),
    _again("dated-290-s-ahead", _dated(290)),
    _again("nonce-of-another-path", _with_nonce(lambda w, m: w.got("/v1/grants", **m))),
    _again("nonce-of-another-query", _with_nonce(
        lambda w, m: w.got("/v1/stats?namespace=team", **m))),
    _again("nonce-of-another-method-and-body", _with_nonce(
        lambda w, m: w.asked("/v1/recall", **m))),
    _again("nonce-of-another-second", _with_nonce(
        lambda w, m: w.got("/v1/keys", **(m | {"timestamp": str(int(time.time()) - 5)})))),
    _again("nonce-with-the-account-named", _with_nonce(
        lambda w, m: w.got("/v1/keys", account=w.managed.text, **m))),
    _again("nonce-in-upper-case", _spelled(str.upper)),
    _again("nonce-in-mixed-case", _spelled(str.title)),
]  # fmt: skip
