"""Correcting and seeing over HTTP: shapes of answers, bounds of bodies, and who is refused."""

import uuid
from typing import Any

import httpx
import pytest
from litestar.types import ASGIApp

from relayer.clock import utc_now
from relayer.preferences import AccountSettings
from relayer.sealed.keys import Namespace
from relayer.storage import Storage
from relayer.upkeep.provision import NewKey, add_key, create_account
from tests.routes_scene import Answer, Desk, client, desk, named, remember
from tests.signing import client_of, signer_of

__all__ = ["client", "desk", "named"]  # fixtures

TEA, COFFEE = "Anna prefers green tea.", "Anna prefers black coffee."


async def get(client: httpx.AsyncClient, path: str, **query: Any) -> Answer:
    answer = await client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    found: Answer = answer.json()
    return found


async def test_edit_history_and_the_members_of_a_memory(
    client: httpx.AsyncClient, named: Answer
) -> None:
    memory = await remember(client, named, TEA, tags=["drink"])
    answer = await client.patch(
        f"/v1/memories/{memory}", json={"text": COFFEE, "revision": 1, **named}
    )
    edited = answer.json()
    assert (answer.status_code, set(edited)) == (
        200,
        {"id", "revision", "status", "unchanged", "redacted", "receipt"},
    )
    assert (edited["id"], edited["revision"], edited["unchanged"]) == (memory, 2, False)
    again = (await client.patch(f"/v1/memories/{memory}", json={"text": COFFEE, **named})).json()
    assert (again["revision"], again["unchanged"], again["receipt"]) == (2, True, None)
    history = await get(client, f"/v1/memories/{memory}/history")
    assert set(history) == {"id", "revisions", "links", "next_cursor"}
    assert [(r["id"], r["revision"], r["text"]) for r in history["revisions"]] == [
        (memory, 2, COFFEE),
        (memory, 1, TEA),
    ]
    shown = await get(client, f"/v1/memories/{memory}")
    assert shown == history["revisions"][0]
    assert (shown["state"], shown["pinned"], shown["seen_count"]) == ("active", False, 1)
    assert (shown["writer_label"], shown["tags"]) == ("managed", ["drink"])
    assert shown["created_at"] < shown["updated_at"]
    first = await get(client, f"/v1/memories/{memory}", revision=1)
    assert first == history["revisions"][1]
    assert first["superseded_at"] == shown["updated_at"]
    for revision in ("0", "3", "101", "x"):
        answer = await client.get(f"/v1/memories/{memory}", params={"revision": revision})
        assert answer.status_code == (404 if revision == "3" else 400)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"revision": 1},
        {"text": ""},
        {"text": " \n"},
        {"text": None},
        {"text": 1},
        {"tags": [""]},
        {"tags": None},
        {"kind": "thing"},
        {"importance": None},
        {"event_time": "yesterday"},
        {"expires_at": "2020-01-01T00:00:00Z"},
        {"metadata": {"a": 1}},
        {"text": "x", "revision": 0},
        {"text": "x", "namespace": "other"},
        {"text": "x", "idempotency_key": ""},
        {"text": "x", "seen_count": 3},
    ],
)
async def test_what_an_edit_may_not_say(desk: Desk, body: Answer) -> None:
    memory = await remember(desk.client, desk.named, f"{TEA} {uuid.uuid4()}")
    answer = await desk.client.patch(f"/v1/memories/{memory}", json=body | desk.named)
    assert (answer.status_code, answer.json()["code"]) == (400, "request.invalid"), answer.text
    assert (await get(desk.client, f"/v1/memories/{memory}"))["revision"] == 1


async def test_a_change_names_its_relayer(client: httpx.AsyncClient, named: Answer) -> None:
    memory = await remember(client, named, TEA)
    for other in ({}, {"relayer": "ab" * 32}):
        for answer in (
            await client.patch(f"/v1/memories/{memory}", json={"text": COFFEE, **other}),
            await client.post(f"/v1/memories/{memory}/state", json={"pinned": True, **other}),
        ):
            assert answer.status_code == 400
    assert (await get(client, f"/v1/memories/{memory}"))["text"] == TEA


async def test_states_and_review(client: httpx.AsyncClient, named: Answer) -> None:
    memory = await remember(client, named, TEA)
    path = f"/v1/memories/{memory}/state"
    done = (await client.post(path, json={"pinned": True, **named})).json()
    assert set(done) == {
        *("id", "state", "pinned", "review", "stale"),
        *("superseded_at", "superseded_by", "receipt"),
    }
    assert (done["pinned"], done["state"], done["receipt"] is not None) == (True, "active", True)
    again = (await client.post(path, json={"pinned": True, **named})).json()
    assert again == done | {"receipt": None}
    rejected = (await client.post(path, json={"review": "rejected", **named})).json()
    assert (rejected["state"], rejected["review"]) == ("rejected", "rejected")
    listed = await get(client, "/v1/memories", state="rejected", pinned="true")
    assert [m["id"] for m in listed["memories"]] == [memory]
    assert (await get(client, "/v1/memories"))["memories"] == []
    approved = (await client.post(path, json={"review": "approved", **named})).json()
    assert (approved["state"], approved["review"]) == ("active", None)
    assert await get(client, "/v1/review") == {"memories": [], "next_cursor": None}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"pinned": "yes"}, 400),
        ({"pinned": None}, 400),
        ({"review": "pending"}, 400),
        ({"review": None}, 400),
        ({"state": "active"}, 400),
        ({"superseded_at": None}, 400),
        ({"superseded_by": "x"}, 404),
        ({"superseded_by": str(uuid.uuid4())}, 404),
    ],
)
async def test_what_a_state_may_not_be(desk: Desk, body: Answer, status: int) -> None:
    memory = await remember(desk.client, desk.named, f"{TEA} {uuid.uuid4()}")
    answer = await desk.client.post(f"/v1/memories/{memory}/state", json=body | desk.named)
    assert answer.status_code == status, answer.text
    assert (await get(desk.client, f"/v1/memories/{memory}"))["state"] == "active"


async def test_lists_take_their_filters(client: httpx.AsyncClient, named: Answer) -> None:
    one = await remember(client, named, "one", tags=["a", "b"], source="mail", kind="event")
    two = await remember(client, named, "two", tags=["a"], namespace="team")
    writer = (await get(client, f"/v1/memories/{one}"))["writer"]
    for query, expected in (
        ({}, [one]),
        ({"namespaces": ["default", "team"]}, [two, one]),
        ({"namespaces": ["default", "team"], "tag": ["a", "b"]}, [one]),
        ({"tag": "a", "source": "mail", "kind": "event", "writer": writer}, [one]),
        ({"writer": "00" * 32}, []),
        ({"after": "2020-01-01T00:00:00Z"}, [one]),
        ({"before": "2020-01-01T00:00:00+02:00"}, []),
        ({"pinned": "true"}, []),
        ({"state": "all"}, [one]),
    ):
        found = await get(client, "/v1/memories", **query)
        assert [m["id"] for m in found["memories"]] == expected, query


@pytest.mark.parametrize(
    "query",
    [
        {"namespace": "a", "namespaces": "b"},
        {"namespaces": ["a", "a"]},
        {"namespaces": [str(n) for n in range(17)]},
        {"tag": ""},
        {"tag": "x" * 129},
        {"tag": [str(n) for n in range(33)]},
        {"source": "x" * 513},
        {"writer": "x"},
        {"after": "yesterday"},
        {"before": "2026-01-01T00:00:00"},
        {"before": "0001-01-01T00:00:00Z"},
        {"state": "pending"},
        {"pinned": "perhaps"},
    ],
)
async def test_what_a_list_may_not_ask(desk: Desk, query: Answer) -> None:
    answer = await desk.client.get("/v1/memories", params=query)
    assert answer.status_code == 400, answer.text


async def test_how_much_there_is(client: httpx.AsyncClient, named: Answer) -> None:
    """One entry for each namespace; earlier revisions are bytes, not memories."""
    one = await remember(client, named, TEA)
    two = await remember(client, named, "Ben sells cups.")
    await client.patch(f"/v1/memories/{one}", json={"text": COFFEE, **named})
    await client.post(f"/v1/memories/{two}/state", json={"review": "rejected", **named})
    [namespace] = (await get(client, "/v1/namespaces"))["namespaces"]
    assert set(namespace) == {
        *("name", "epoch", "key_id", "epochs", "memory_count", "revision_count"),
        *("superseded_count", "pending_count", "rejected_count", "storage_bytes"),
        *("index_bytes", "updated_at", "ttl_s", "index", "index_moves"),
    }
    assert namespace["epochs"] == [{"epoch": 1, "key_id": namespace["key_id"]}]
    counts = {n: v for n, v in namespace.items() if n.endswith("_count")}
    assert counts == {
        "memory_count": 2,
        "revision_count": 1,
        "superseded_count": 0,
        "pending_count": 0,
        "rejected_count": 1,
    }
    usage = await get(client, "/v1/usage")
    assert {name: usage[name] for name in counts} == counts
    assert usage["storage_bytes"] == namespace["storage_bytes"] > 3 * 396
    assert usage["index_bytes"] == namespace["index_bytes"] > 3 * 1_500
    assert (await get(client, "/v1/stats", namespace="default"))["memory_count"] == 2


async def test_kept_turns(
    client: httpx.AsyncClient, named: Answer, storage: Storage, managed: NewKey
) -> None:
    talk = "1. user: I prefer window seats on trains."
    plain = (await client.post("/v1/analyze", json={"text": talk, **named})).json()
    assert (plain["turn_id"], plain["episode_id"], plain["status"]) == (None, None, "done")
    access = await storage.accounts.access(managed.account, managed.identity.public_key)
    assert access is not None
    await storage.accounts.choose(access, AccountSettings(keep_turns=True))
    kept = (await client.post("/v1/analyze", json={"text": talk, **named})).json()
    assert (kept["facts"], kept["reinforced"]) == ([], [plain["facts"][0]["id"]])
    listed = await get(client, "/v1/episodes")
    [turn] = listed["episodes"]
    assert (turn["id"], turn["fact_ids"], "text" in turn) == (
        kept["turn_id"],
        kept["reinforced"],
        False,
    )
    path = f"/v1/episodes/{turn['id']}"
    assert (await get(client, path))["text"] == talk
    again = await client.post(f"{path}/analyze", json=named)
    assert (again.status_code, again.json()["reinforced"]) == (202, kept["reinforced"])
    for cursor in ("x", "1", "1.x", "-1.x", f"{10**17}.{turn['id']}x"):
        assert (await client.get("/v1/episodes", params={"cursor": cursor})).status_code == 400
    assert (await client.get("/v1/episodes/x")).status_code == 404


async def test_foreign_is_absent(
    app: ASGIApp, client: httpx.AsyncClient, named: Answer, storage: Storage, managed: NewKey
) -> None:
    """A stranger and a key of another namespace read the same 404; a reader may not change."""
    memory = await remember(client, named, TEA)
    stranger = await create_account(storage, label="x", custody="managed", clock=utc_now)
    keys = {}
    for role, namespace in (("writer", "team"), ("reader", "default")):
        keys[role] = await add_key(
            storage,
            account=managed.account,
            namespaces=[Namespace(namespace)],
            role=role,  # type: ignore[arg-type]
            label=role,
            expires_at=None,
            owner=managed.identity,
            clock=utc_now,
        )
    for key, code in ((stranger, 404), (keys["writer"], 404), (keys["reader"], 403)):
        other = client_of(app, signer_of(key))
        path = f"/v1/memories/{memory}"
        assert (await other.patch(path, json={"text": "x", **named})).status_code == code
        state = await other.post(f"{path}/state", json={"pinned": True, **named})
        assert state.status_code == code
        for read in (path, f"{path}/history", f"{path}?revision=1"):
            assert (await other.get(read)).status_code == (200 if code == 403 else 404)
    shown = await get(client_of(app, signer_of(keys["reader"])), f"/v1/memories/{memory}")
    assert shown["writer_label"] == "managed"
