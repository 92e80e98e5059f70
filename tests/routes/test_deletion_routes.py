"""The routes that erase, as clients call them."""

import uuid
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from relayer.clock import utc_now
from relayer.sealed.keys import Namespace, account_text
from relayer.settings import Limits
from relayer.storage import Storage
from relayer.upkeep import provision
from relayer.upkeep.provision import NewKey
from tests.routes_scene import Answer, Desk, client, desk, named, remember
from tests.services import new_identity
from tests.signing import client_of, signer_of

__all__ = ["client", "desk", "named"]  # fixtures

TTL = "/v1/namespaces/default"


async def forget(client: httpx.AsyncClient, named: Answer, **members: Any) -> httpx.Response:
    return await client.post("/v1/forget", json={**members, **named})


async def test_one_and_the_same_again(client: httpx.AsyncClient, named: Answer) -> None:
    memory = await remember(client, named, "Anna prefers tea.")
    first = (await client.delete(f"/v1/memories/{memory}", params=named)).json()
    assert (first["id"], first["erased"], first["already"]) == (memory, True, False)
    assert first["receipts"] == [first["receipt"]]
    again = await client.delete(f"/v1/memories/{memory}", params=named)
    assert again.status_code == 200
    assert again.json() == {
        "id": memory, "erased": True, "already": True, "pending": False, "receipt": None,
        "receipts": [],
    }  # fmt: skip
    assert (await client.get(f"/v1/memories/{memory}")).status_code == 404
    absent = await client.delete(f"/v1/memories/{uuid.uuid4()}", params=named)
    assert (absent.status_code, absent.json()["code"]) == (404, "not_found")


async def test_several_by_id(client: httpx.AsyncClient, named: Answer) -> None:
    memory = await remember(client, named, "Anna prefers tea.")
    ids = [memory, "not an id", str(uuid.uuid4())]
    dry = (await forget(client, named, ids=ids, dry_run=True)).json()
    assert [r["status"] for r in dry["results"]] == ["matched", "not_found", "not_found"]
    done = (await forget(client, named, ids=ids)).json()
    assert [(r["id"], r["status"]) for r in done["results"]] == [
        (memory, "erased"), (ids[1], "not_found"), (ids[2], "not_found"),
    ]  # fmt: skip
    assert (done["matched"], done["erased"], done["more"], done["ids"]) == (1, 1, False, [memory])
    again = (await forget(client, named, ids=ids)).json()
    assert again["results"][0]["status"] == "already_erased"
    assert again["receipts"] == []


async def test_what_fits(client: httpx.AsyncClient, named: Answer) -> None:
    tea = await remember(client, named, "Anna prefers tea.", tags=["drinks"], kind="preference")
    cups = await remember(client, named, "Ben sells cups.")
    wanted = {"namespace": "default", "tags": ["drinks"], "kind": "preference"}
    dry = (await forget(client, named, **wanted, dry_run=True)).json()
    assert (dry["matched"], dry["erased"], dry["ids"], dry["receipts"]) == (1, 0, [tea], [])
    done = (await forget(client, named, **wanted)).json()
    assert (done["matched"], done["erased"], done["ids"]) == (1, 1, [tea])
    assert "results" not in done
    assert (await client.get(f"/v1/memories/{cups}")).status_code == 200


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"ids": []},
        {"ids": ["x"] * 101},
        {"ids": ["x"], "namespace": "default"},
        {"ids": ["x"], "kind": "fact"},
        {"ids": ["x"], "state": "all"},
        {"kind": "fact"},
        {"namespace": "default", "kind": "unheard of"},
        {"namespace": "default", "state": "gone"},
        {"namespace": "default", "tags": "drinks"},
        {"namespace": "default", "tags": []},
        {"namespace": "default", "kind": "fact", "tags": []},
        {"namespace": "default", "writer": "ab"},
        {"namespace": "default", "pinned": "yes"},
        {"namespace": "default", "after": "2031-01-01"},
        {
            "namespace": "default",
            "after": "2031-01-02T00:00:00Z",
            "before": "2031-01-01T00:00:00Z",
        },
        {"namespace": "default", "query": "tea"},
        {"namespace": ""},
    ],
)
async def test_what_is_not_clear_erases_nothing(desk: Desk, members: Answer) -> None:
    memory = await remember(desk.client, desk.named, f"Anna prefers tea. {uuid.uuid4()}")
    assert (await forget(desk.client, desk.named, **members)).status_code == 400
    assert (await desk.client.get(f"/v1/memories/{memory}")).status_code == 200


async def test_each_change_names_its_relayer(
    client: httpx.AsyncClient, managed: NewKey, named: Answer
) -> None:
    memory = await remember(client, named, "Anna prefers tea.")
    other = {"relayer": "ab" * 32}
    account = account_text(managed.account)
    answers = [
        await forget(client, other, ids=[memory]),
        await client.delete("/v1/namespaces/default", params=other),
        await client.put(TTL, json={"ttl_s": 60, **other}),
        await client.delete(f"/v1/accounts/{account}", params={"confirm": account, **other}),
    ]
    assert [(a.status_code, a.json()["code"]) for a in answers] == [(400, "relayer.other")] * 4
    assert (await client.get(f"/v1/memories/{memory}")).status_code == 200


@pytest.mark.parametrize("name", ["team", "a/b//c", "Ärger & Söhne?", "50%", " spaced "])
async def test_a_namespace_with_any_name(
    client: httpx.AsyncClient, named: Answer, name: str
) -> None:
    await remember(client, named, "Anna prefers tea.", namespace=name)
    kept = await remember(client, named, "Ben sells cups.")
    path = f"/v1/namespaces/{quote(name, safe='')}"
    ttl = (await client.put(path, json={"ttl_s": 3600, **named})).json()
    assert (ttl["name"], ttl["ttl_s"], ttl["changed"]) == (name.strip(), 3600, 1)
    done = (await client.delete(path, params=named)).json()
    assert (done["namespace"], done["matched"], done["erased"]) == (name.strip(), 1, 1)
    listed = (await client.get("/v1/namespaces")).json()["namespaces"]
    assert {n["name"] for n in listed} == {"default"}
    assert (await client.get(f"/v1/memories/{kept}")).status_code == 200


@pytest.mark.parametrize("name", ["%FF", "%00", "%20", "a%0Ab"])
async def test_a_name_that_cannot_be_is_refused(desk: Desk, name: str) -> None:
    answer = await desk.client.delete(f"/v1/namespaces/{name}", params=desk.named)
    assert (answer.status_code, answer.json()["code"]) == (400, "namespace.invalid")


@pytest.mark.parametrize("ttl", [0, 59, -1, Limits.ttl_s_max + 1, 60.5, "60", True])
async def test_a_life_out_of_range_changes_nothing(
    client: httpx.AsyncClient, named: Answer, ttl: Any
) -> None:
    await remember(client, named, "Anna prefers tea.")
    assert (await client.put(TTL, json={"ttl_s": ttl, **named})).status_code == 400
    assert (await client.put(TTL, json=named)).status_code == 400
    [memory] = (await client.get("/v1/memories")).json()["memories"]
    assert memory["expires_at"] is None


async def test_an_account(
    client: httpx.AsyncClient, app: Any, storage: Storage, managed: NewKey, named: Answer
) -> None:
    agent = await provision.add_key(
        storage, account=managed.account, namespaces=[Namespace("default")], role="writer",
        label="", expires_at=None, owner=managed.identity, clock=utc_now,
    )  # fmt: skip
    helper = client_of(app, signer_of(agent))
    await remember(client, named, "Anna prefers tea.")
    account = account_text(managed.account)
    path = f"/v1/accounts/{account}"
    refused = [
        await client.delete(path, params=named),
        await client.delete(path, params={"confirm": "yes", **named}),
        await helper.delete(path, params={"confirm": account, **named}),
        await client.delete(f"/v1/accounts/0x{'0' * 64}", params={"confirm": account, **named}),
    ]
    assert [a.status_code for a in refused] == [400, 400, 403, 404]
    done = await client.delete(path, params={"confirm": account, **named})
    assert done.status_code == 200
    assert (done.json()["closed"], done.json()["matched"]) == (True, 1)
    assert len(done.json()["receipts"]) == 1
    stranger = client_of(app, signer_of(NewKey(managed.account, new_identity(), "managed")))
    answers = [await who.get("/v1/usage") for who in (client, helper, stranger)]
    assert [a.status_code for a in answers] == [401] * 3
    assert len({a.json()["code"] for a in answers}) == 1
