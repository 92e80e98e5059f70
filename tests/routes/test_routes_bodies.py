"""What the body of a request may hold: known members, well-formed JSON, sizes, this relayer's name.

Not here: the controls of a recall (`test_routes_controls.py`).
"""

import uuid

import httpx
import msgspec
import pytest
from litestar.types import ASGIApp

from relayer.http import bodies
from relayer.routes import memories, memwal
from relayer.sealed.keys import Identity
from relayer.settings import Limits
from tests.routes_scene import (
    CHANGES,
    MEMWAL_BODIES,
    OUR_BODIES,
    Answer,
    Desk,
    assert_error_shape,
    client,
    desk,
    named,
)
from tests.signing import client_of, signed_headers

__all__ = ["client", "desk", "named"]  # fixtures


@pytest.mark.parametrize("form", [memories.RememberBody, memwal.MemwalRememberBody])
def test_a_body_shows_nothing_of_what_was_sent(form: type[bodies.Body]) -> None:
    named = {"relayer": "0" * 64} if form is memories.RememberBody else {}
    assert repr(msgspec.convert({"text": "Anna", **named}, form)) == f"{form.__name__}(…)"


@pytest.mark.parametrize("path", OUR_BODIES)
async def test_our_bodies_refuse_members_they_do_not_know(desk: Desk, path: str) -> None:
    body = OUR_BODIES[path] | (desk.named if path in CHANGES else {})
    taken = await desk.client.post(path, json=body)
    refused = await desk.client.post(path, json=body | {"nobody_knows_me": 1})
    assert "malformed" not in taken.json().get("message", "")
    assert refused.status_code == 400
    message = "The request is malformed: a member is unknown in the body."
    assert refused.json()["message"] == message


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("/v1/remember/bulk", {"items": [{"text": "a", "nobody": 1}]}, "items[0]"),
        ("/v1/remember/bulk", {"items": [{"text": "a", "relayer": "b"}]}, "items[0]"),
        ("/v1/recall", {"query": "a", "scoring_weights": {"nobody": 1}}, "scoring_weights"),
    ],
)
async def test_nor_do_the_objects_inside_them(
    desk: Desk, path: str, body: Answer, place: str
) -> None:
    answer = await desk.client.post(path, json=body | (desk.named if path in CHANGES else {}))
    assert answer.status_code == 400
    assert answer.json()["message"] == f"The request is malformed: a member is unknown in {place}."


@pytest.mark.parametrize("path", MEMWAL_BODIES)
async def test_memwals_bodies_tolerate_members_they_do_not_know(desk: Desk, path: str) -> None:
    body = MEMWAL_BODIES[path] | {"nobody_knows_me": [{"a": None}], "sort": "recent"}
    if path == "/api/remember/bulk":
        body["items"] = [{"text": "Anna prefers tea.", "nobody": 1}]
    if path == "/api/recall":
        body["scoring_weights"] = {"nobody": 1, "recency": 0.5}
    answer = await desk.client.post(path, json=body)
    no_model, no_embedder = "llm.not_configured", "embedder.not_configured"
    expected = {"/api/ask": no_model, "/api/embed": no_embedder}.get(path)
    assert answer.json().get("code") == expected


MALFORMED = [
    (b"", "The request is malformed: data."),
    (b"null", "The request is malformed: a value is out of range or of the wrong type"),
    (b"[]", "The request is malformed: a value is out of range or of the wrong type"),
    (b"{", "The request body is not valid JSON."),
    (b'{"query":"CANARY"} x', "The request body is not valid JSON."),
    (b"\xef\xbb\xbf" + b'{"query":"CANARY"}', "The request body is not valid JSON."),
    (b'{"query":"CANARY\xff"}', "The request body is not valid JSON."),
    (b'{"query":"CANARY\\ud800"}', "The request body is not valid JSON."),
    (b'{"query":"CANARY\\udc00\\ud800"}', "The request body is not valid JSON."),
    (b'{"query":"CANARY\n"}', "The request body is not valid JSON."),
    (b'{"query":"CANARY","query":"CANARY"}', "The request body is not valid JSON."),
    (b'{"query":"CANARY","scoring_weights":{"recency":1,"recency":1}}', "The request body is not"),
    (b'{"query":"CANARY","min_relevance":NaN}', "The request body is not valid JSON."),
    (b'{"query":"CANARY","min_relevance":Infinity}', "The request body is not valid JSON."),
    (b'{"query":"CANARY","min_relevance":1e999}', "The request is malformed"),
    (b'{"query":"CANARY","limit":' + b"9" * 5_000 + b"}", "The request "),
    (b'{"query":"CANARY","limit":"3"}', "The request is malformed: a value is out of range or of "),
    (b'{"query":"CANARY","limit":3.5}', "The request is malformed: a value is out of range or of "),
    (
        b'{"query":"CANARY","limit":0}',
        "The request is malformed: a value is out of range or of the",
    ),
    (b'{"query":"CANARY","limit":101}', "The request is malformed: a value is out of range or of"),
    (b'{"query":"CANARY","explain":"true"}', "The request is malformed: a value is out of range"),
    (b'{"query":"CANARY","after":1700000000}', "The request is malformed: a value is out of range"),
    (b'{"query":"CANARY","after":"2026-05-04T09:30:00"}', "The request is malformed: a value is"),
    (b'{"query":"CANARY","after":"CANARY"}', "The request is malformed: a value is out of range"),
    (b'{"query":"CANARY","kinds":["CANARY"]}', "The request is malformed: a value is out of range"),
    (b'{"query":"CANARY","mode":"CANARY"}', "The request is malformed: a value is out of range or"),
    (b'{"query":["CANARY"]}', "The request is malformed: a value is out of range or of the wrong"),
    (
        b'{"query":"CANARY","CANARY":1}',
        "The request is malformed: a member is unknown in the body.",
    ),
    (b'{"CANARY":1}', "The request is malformed: "),
    (b'{"query":"CANARY","metadata":{"CANARY":5}}', "The request is malformed: a value is out of "),
    (b'{"limit":5}', "The request is malformed: query is missing in the body."),
    (b'{"query":"  "}', "query is empty."),
    (b'{"query":"CANARY","namespace":""}', "a namespace"),
    (b'{"query":"CANARY","namespace":"CANARY\\u0000"}', "a namespace"),
    (b"[" * 100_000, "The request "),
    (b'{"query":"CANARY","a":' + b"[" * 100_000, "The request "),
    (b'{"a":' * 100_000, "The request "),
]


@pytest.mark.parametrize(("body", "message"), MALFORMED, ids=range(len(MALFORMED)))
async def test_a_malformed_body_is_refused_and_never_echoed(
    desk: Desk, body: bytes, message: str
) -> None:
    answer = await desk.client.post("/v1/recall", content=body)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith(message)
    assert "CANARY" not in answer.text
    assert_error_shape(answer)


@pytest.mark.parametrize(
    "body", [b"\xff", b"[" * 100_000, b'{"query":NaN}', b'{"query":"\\ud800"}', b'{"query":1}']
)
async def test_memwals_routes_refuse_what_is_not_json_too(desk: Desk, body: bytes) -> None:
    answer = await desk.client.post("/api/recall", content=body)
    assert answer.status_code == 400
    assert_error_shape(answer)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/remember", {"text": "a" * (Limits.text_bytes_max + 1)}),
        ("/v1/remember", {"text": "é" * (Limits.text_bytes_max // 2 + 1)}),
        ("/v1/analyze", {"text": "a" * (Limits.analyze_bytes_max + 1)}),
        ("/v1/recall", {"query": "a" * (Limits.query_bytes_max + 1)}),
        ("/v1/recall", {"query": "a", "metadata": {"a": "b" * Limits.metadata_bytes_max}}),
        ("/v1/recall", {"query": "a" * Limits.body_bytes_max}),
        ("/v1/recall", {"query": "a", "goal": "é" * (Limits.goal_bytes_max // 2 + 1)}),
        ("/v1/ask", {"question": "a" * (Limits.query_bytes_max + 1)}),
    ],
    ids=str,
)
async def test_what_is_too_large_answers_413(desk: Desk, path: str, body: Answer) -> None:
    answer = await desk.client.post(path, json=body | (desk.named if path in CHANGES else {}))
    assert (answer.status_code, answer.json()["code"]) == (413, "request.too_large")
    assert_error_shape(answer)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/remember", {"text": "a" * (Limits.text_bytes_max + 1)}),
        ("/api/remember", {"text": "é" * (Limits.text_bytes_max // 2 + 1)}),
        ("/api/remember", {"text": "a" * Limits.body_bytes_max}),
        ("/api/remember/bulk", {"items": [{"text": "a" * (Limits.bulk_text_bytes_max + 1)}]}),
        ("/api/analyze", {"text": "a" * (Limits.analyze_bytes_max + 1)}),
        ("/api/recall", {"query": "a" * (Limits.query_bytes_max + 1)}),
        ("/api/ask", {"question": "a" * (Limits.query_bytes_max + 1)}),
        ("/api/embed", {"text": "a" * (Limits.bulk_text_bytes_max + 1)}),
        (
            "/api/remember/manual",
            {"vector": [1.0], "encrypted_data": "A" * (Limits.manual_bytes_max // 3 * 4 + 4)},
        ),
    ],
    ids=str,
)
async def test_what_is_too_long_answers_memwals_clients_as_its_own_relayer_does(
    desk: Desk, path: str, body: Answer
) -> None:
    """Its tests look for the status and these words."""
    answer = await desk.client.post(path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "request.invalid")
    assert "exceeds maximum length of" in answer.json()["error"]
    assert_error_shape(answer)


async def test_a_body_too_large_is_refused_before_its_signature_is_looked_at(
    app: ASGIApp,
) -> None:
    formed = signed_headers(Identity(bytes(32)), "POST", "/v1/recall")
    formed["x-signature"] = "00" * 64
    async with client_of(app) as client:
        body = b"a" * (Limits.body_bytes_max + 1)
        answer = await client.post("/v1/recall", content=body, headers=formed)
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        {"items": []},
        {"items": [{"text": "a"}] * 21},
        {"items": [{"text": "a", "tags": ["x"] * 33}]},
        {"items": [{"text": "a", "tags": [""]}]},
        {"items": [{"text": "a", "importance": "huge"}]},
    ],
    ids=str,
)
async def test_what_is_out_of_range_answers_400(desk: Desk, body: Answer) -> None:
    answer = await desk.client.post("/v1/remember/bulk", json=body | desk.named)
    assert answer.status_code == 400
    assert_error_shape(answer)


@pytest.mark.parametrize(
    "item",
    [
        {"text": "a", "metadata": {str(n): "x" for n in range(65)}},
        {"text": "a", "expires_at": "2020-01-01T00:00:00Z"},
        {"text": "a", "namespace": "a" * 129},
        {"text": " \n"},
    ],
    ids=str,
)
async def test_what_one_item_says_out_of_range_is_refused_alone(desk: Desk, item: Answer) -> None:
    answer = await desk.client.post("/v1/remember", json=item | desk.named)
    assert answer.status_code == 400
    body = {"items": [item, {"text": "Another one is fine."}]}
    bulk = await desk.client.post("/v1/remember/bulk", json=body | desk.named)
    assert bulk.status_code == 202
    refused, stored = bulk.json()["results"]
    assert (refused["status"], refused["code"]) == ("rejected", answer.json()["code"])
    assert stored["status"] == "uploaded"


@pytest.mark.parametrize("query", ["", "?relayer="])
async def test_a_delete_must_name_its_relayer(desk: Desk, query: str) -> None:
    answer = await desk.client.delete(f"/v1/memories/{uuid.uuid4()}{query}")
    assert answer.status_code == 400


@pytest.mark.parametrize("path", sorted(CHANGES))
async def test_a_change_signed_for_another_relayer_is_worthless_here(desk: Desk, path: str) -> None:
    unnamed = await desk.client.post(path, json=OUR_BODIES[path])
    other = await desk.client.post(path, json=OUR_BODIES[path] | {"relayer": "ab" * 32})
    assert unnamed.json()["message"].endswith("relayer is missing in the body.")
    assert (other.status_code, other.json()["code"]) == (400, "relayer.other")


async def test_removing_a_webhook_names_its_relayer(client: httpx.AsyncClient) -> None:
    path = f"/v1/webhooks/{uuid.uuid4()}"
    answer = await client.delete(path, params={"relayer": "ab" * 32})
    assert (answer.status_code, answer.json()["code"]) == (400, "relayer.other")


async def test_an_erasure_signed_for_another_relayer_is_worthless_here(
    client: httpx.AsyncClient, named: Answer
) -> None:
    stored = await client.post("/v1/remember", json={"text": "Anna prefers tea."} | named)
    path = f"/v1/memories/{stored.json()['id']}"
    answer = await client.delete(path, params={"relayer": "ab" * 32})
    assert (answer.status_code, answer.json()["code"]) == (400, "relayer.other")
    assert (await client.get(path)).status_code == 200
