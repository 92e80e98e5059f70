"""Every case of the table, sent to one real relayer: how it is refused, and that nothing stays."""

import asyncio
from typing import Any

import pytest

from tests.refusals import queries, unlocks
from tests.refusals.case import CANARY, HTTP, NO_ANSWER, Case, Script
from tests.refusals.conftest import Desk
from tests.refusals.table import GROUPS
from tests.refusals.wire import Reply
from tests.refusals.world import TEXT, World

AT_ONCE = 12
UNPARSED = ("request.invalid", "That is no HTTP/1.1 request.")


def test_the_table_has_at_least_300_cases_with_names_of_their_own() -> None:
    names = [case.name for cases in GROUPS.values() for case in cases]
    assert len(names) == len(set(names))
    assert len(names) >= 300


async def test_what_the_cases_spoil_passes_unspoilt(desk: Desk) -> None:
    """Else a case could be refused for another reason than its own."""
    w = desk.world
    good = [
        w.got("/v1/keys"),
        w.got("/v1/keys", account=w.managed.text),
        w.got("/v1/keys", w.reader),
        w.got(f"/v1/memories/{w.memory_id}"),
        w.asked(),
        w.asked("/api/recall", {"query": "mill", "namespace": "team", "nobody": 1}),
        *(w.got(path) for path in queries.LIMITED),
        *(w.got(f"/v1/export?part={part}") for part in queries.EXPORTED),
    ]
    for raw in [*(request.sent() for request in good), unlocks.lent(w, unlocks.header(w))]:
        reply = await w.send(raw)
        assert reply.status == 200, reply.raw


@pytest.mark.parametrize("group", GROUPS)
async def test_each_is_refused_as_the_table_says_and_leaves_nothing(desk: Desk, group: str) -> None:
    """Hostile and malformed requests are refused by name, and nothing is stored."""
    before = await desk.stored()
    limit = asyncio.Semaphore(AT_ONCE)

    async def judged(case: Case) -> list[str]:
        async with limit:
            return await _judged(desk.world, case)

    wrong = await asyncio.gather(*map(judged, GROUPS[group]))
    found = [complaint for complaints in wrong for complaint in complaints]
    assert found == []
    assert await desk.stored() == before


async def _judged(world: World, case: Case) -> list[str]:
    """What is wrong with the answers to a case."""
    built = case.build(world)
    script = built if isinstance(built, Script) else Script((), _listed(built))
    for raw in script.passed:
        reply = await world.send(raw)
        if reply.status not in (200, 202):
            return [f"{case.name}: {reply.status} for what has to pass"]
    assert script.refused, f"{case.name} sends nothing"
    found = []
    for raw in script.refused:
        try:
            reply = await world.send(raw)
        except TimeoutError:
            return [f"{case.name}: no end of an answer: {raw[:120]!r}"]
        if complaint := _complaint(case, reply):
            found.append(f"{case.name}: {complaint}: {raw[-120:]!r} → {reply.raw[-300:]!r}")
    return found


def _listed(built: Any) -> list[bytes]:
    return [built] if isinstance(built, bytes) else list(built)


def _complaint(case: Case, reply: Reply) -> str:
    if CANARY.encode() in reply.raw or TEXT.encode() in reply.raw:
        return "the answer quotes what it must not"
    if reply.status != case.status:
        return f"status is not {case.status}"
    if case.code == NO_ANSWER:
        return "" if reply.raw == b"" else "there is an answer"
    code, says = UNPARSED if case.code == HTTP else (case.code, case.says)
    body = reply.json()
    if not isinstance(body, dict) or body.keys() != {"error", "message", "code", "request_id"}:
        return "not the shape of an error"
    if body["code"] != code or says not in body["message"]:
        return f"not {code} ({says})"
    return "" if body["request_id"] == reply.headers["x-request-id"] else "another request id"
