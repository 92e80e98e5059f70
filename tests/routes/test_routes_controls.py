"""The controls of a recall, a question and a list: each within its bounds, or 400."""

import httpx
import pytest
from litestar.types import ASGIApp

from relayer.storage import Storage
from relayer.upkeep.provision import NewKey
from tests.routes_scene import (
    OUR_BODIES,
    Answer,
    Desk,
    assert_error_shape,
    client,
    desk,
    key_of,
    named,
)
from tests.signing import client_of, signer_of

__all__ = ["client", "desk", "named"]  # fixtures

TWO_WEIGHTS = {"vector_weight": 1, "text_weight": 1}
KEY = "ab" * 32
NARROWING: list[tuple[Answer, str]] = [
    ({"namespace": 7}, ""),
    ({"namespaces": []}, ""),
    ({"namespaces": "team"}, ""),
    ({"namespaces": [f"n{n}" for n in range(17)]}, ""),
    ({"namespaces": ["team", " team "]}, "namespaces has a name twice."),
    ({"namespaces": ["team", ""]}, "a namespace"),
    ({"namespace": "team", "namespaces": ["team"]}, "namespace and namespaces exclude each other."),
    ({"kinds": []}, ""),
    ({"kinds": ["thought"]}, ""),
    ({"kinds": "fact"}, ""),
    ({"tags": [""]}, ""),
    ({"tags": ["a" * 129]}, ""),
    ({"tags": ["a"] * 33}, ""),
    ({"after": "2026-05-04"}, ""),
    ({"after": "0001-01-01T00:00:00Z"}, "after is out of range."),
    ({"before": "yesterday"}, ""),
    ({"before": "9999-12-31T00:00:00Z"}, "before is out of range."),
    (
        {"after": "2026-05-04T00:00:00Z", "before": "2026-05-04T02:00:00+02:00"},
        "before is not later than after.",
    ),
    ({"as_of": 1_700_000_000}, ""),
    ({"as_of": "2026-05-04T09:30:00"}, ""),
    ({"as_of": "2126-05-04T09:30:00Z"}, "as_of is in the future."),
]
CONTROLS: list[tuple[Answer, str]] = [
    ({"limit": 0}, ""),
    ({"limit": 101}, ""),
    ({"mode": "semantic"}, ""),
    ({"mode": None}, ""),
    ({"mode": "keyword_first", "min_primary_results": -1}, ""),
    ({"mode": "keyword_first", "min_primary_results": 101}, ""),
    ({"mode": "keyword_first", "min_primary_results": 1.5}, ""),
    ({"min_primary_results": 2}, "min_primary_results is for the mode keyword_first."),
    ({"vector_weight": 1}, "vector_weight and text_weight are given together."),
    ({"text_weight": 0.3}, "vector_weight and text_weight are given together."),
    ({"vector_weight": 0, "text_weight": 0}, "vector_weight and text_weight are not both 0."),
    ({"vector_weight": -1, "text_weight": 1}, ""),
    ({"vector_weight": 1, "text_weight": 100.1}, ""),
    ({"vector_weight": "1", "text_weight": 1}, ""),
    (TWO_WEIGHTS | {"mode": "keyword"}, "vector_weight and text_weight are for the mode hybrid."),
    (TWO_WEIGHTS | {"mode": "keyword_first"}, "vector_weight and text_weight are for the mode"),
    ({"goal": " "}, "goal is empty."),
    ({"goal": ["tea"]}, ""),
    ({"aliases": {"": ["tea"]}}, ""),
    ({"aliases": {"k8s": []}}, ""),
    ({"aliases": {"k8s": "kubernetes"}}, ""),
    ({"aliases": {"k8s": [""]}}, ""),
    ({"aliases": {"k8s": ["a"] * 17}}, ""),
    ({"aliases": {"k8s": ["a" * 129]}}, ""),
    ({"aliases": {"a" * 129: ["tea"]}}, ""),
    ({"aliases": {str(n): ["tea"] for n in range(65)}}, ""),
    ({"source": ""}, ""),
    ({"source": "a" * 513}, ""),
    ({"metadata": {"a": 1}}, ""),
    ({"metadata": {str(n): "a" for n in range(65)}}, "metadata has too many entries"),
    ({"writers": []}, ""),
    ({"writers": [KEY.upper()]}, ""),
    ({"writers": ["0x" + KEY]}, ""),
    ({"writers": [KEY] * 65}, ""),
    ({"min_relevance": 1.1}, ""),
    ({"min_relevance": -0.1}, ""),
    ({"scoring_weights": {"recency": -1}}, ""),
    ({"scoring_weights": {"importance": 101}}, ""),
    ({"scoring_weights": {"recency_half_life_days": 0}}, ""),
    ({"max_tokens": 0}, ""),
    ({"max_tokens": 100_001}, ""),
    ({"max_tokens": 1.5}, ""),
    ({"explain": 1}, ""),
    ({"deep": 1}, ""),
]
REFUSED = [("/v1/recall", *case) for case in NARROWING + CONTROLS]
REFUSED += [("/v1/ask", *case) for case in [*NARROWING, *CONTROLS[:2]]]


@pytest.mark.parametrize(("path", "members", "message"), REFUSED, ids=range(len(REFUSED)))
async def test_a_control_out_of_its_bounds_answers_400(
    desk: Desk, path: str, members: Answer, message: str
) -> None:
    answer = await desk.client.post(path, json=OUR_BODIES[path] | members)
    namespace = "namespace." if message == "a namespace" else "request."
    assert (answer.status_code, answer.json()["code"]) == (400, f"{namespace}invalid")
    expected = message or "The request is malformed: a value is out of range or of the wrong type"
    assert answer.json()["message"].startswith(expected)


@pytest.mark.parametrize("control", ["min_relevance", "goal", "mode", "max_tokens", "explain"])
async def test_a_question_takes_what_narrows_and_nothing_else(desk: Desk, control: str) -> None:
    answer = await desk.client.post("/v1/ask", json=OUR_BODIES["/v1/ask"] | {control: 1})
    assert answer.json()["message"].endswith("a member is unknown in the body.")


async def test_a_reader_of_one_namespace_gets_nothing_of_two(
    app: ASGIApp, storage: Storage, managed: NewKey, client: httpx.AsyncClient, named: Answer
) -> None:
    for name in ("team", "secret"):
        body = {"text": "Anna prefers tea.", "namespace": name}
        await client.post("/v1/remember", json=body | named)
    reader = await key_of(storage, managed, "reader", "team")
    async with client_of(app, signer_of(reader)) as asking:
        allowed = await asking.post("/v1/recall", json={"query": "tea", "namespaces": ["team"]})
        both = {"query": "tea", "namespaces": ["team", "secret"]}
        refused = await asking.post("/v1/recall", json=both)
    assert (allowed.status_code, len(allowed.json()["results"])) == (200, 1)
    assert (refused.status_code, refused.json()["code"]) == (403, "auth.not_allowed")
    assert_error_shape(refused)


FULL: Answer = {
    "namespaces": [f"n{n}" for n in range(16)], "limit": 100, "goal": "g" * 4096,
    "kinds": ["fact"] * 9, "tags": ["a" * 128] * 32, "source": "a" * 512, "metadata": {"a": "b"},
    "writers": [KEY] * 64, "after": "1970-01-01T00:00:00Z", "before": "2970-01-01T00:00:00+02:00",
    "as_of": "2026-01-01T00:00:00Z", "min_relevance": 1, "max_tokens": 100_000, "explain": True,
    "aliases": {f"{n:0128}": ["a" * 128] * 16 for n in range(64)},
    "scoring_weights": {
        "semantic": 0, "recency": 100, "recency_half_life_days": 0.5, "importance": 100,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "members",
    [
        {"mode": "keyword_first", "min_primary_results": 100},
        {"mode": "keyword_first", "min_primary_results": 0},
        {"vector_weight": 0, "text_weight": 100},
        {"vector_weight": 0.7, "text_weight": 0.3, "mode": "hybrid"},
        {"mode": "vector"},
    ],
    ids=str,
)
async def test_every_control_is_taken_at_its_bounds(desk: Desk, members: Answer) -> None:
    answer = await desk.client.post("/v1/recall", json=OUR_BODIES["/v1/recall"] | FULL | members)
    assert (answer.status_code, answer.json()["results"]) == (200, [])


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=201", "limit=x", "cursor=-1", "cursor=x", "cursor=1.5", "cursor=%C2%B2",
     "kind=nothing", "namespace=", "namespace=%00", "namespace=" + "a" * 129,
     "cursor=" + "9" * 19],
)  # fmt: skip
async def test_a_malformed_query_answers_400(desk: Desk, query: str) -> None:
    answer = await desk.client.get(f"/v1/memories?{query}")
    assert answer.status_code == 400
    assert_error_shape(answer)
